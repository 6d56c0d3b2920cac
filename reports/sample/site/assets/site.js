"use strict";
// What every page has: files of data on demand, the search in the head, the theme, snippets to copy.
const rocmAuditSite = (() => {
  const html = document.documentElement, root = html.dataset.root, waiting = new Map();

  // The content of data/NAME.js?VERSION. A page that was opened from a disk may not fetch, but may have scripts.
  function data(address) {
    const [, name, version] = /^(?:data\/)?([^.?]*)(?:\.js)?(\?.*)?$/.exec(address);
    if (!waiting.has(name)) {
      waiting.set(name, new Promise((resolve, reject) => {
        const script = document.createElement("script");
        script.src = `${root}data/${name}.js${version || ""}`;
        script.onload = () => resolve(window.rocmAudit[name]);
        script.onerror = () => { waiting.delete(name); reject(new Error(`${name}.js is not there`)); };
        document.head.append(script);
      }));
    }
    return waiting.get(name);
  }
  const plural = (n, word) => `${n.toLocaleString("en")} ${word}${n === 1 ? "" : "s"}`;
  const readHash = () => new URLSearchParams(location.hash.includes("=") ? location.hash.slice(1) : "");
  function writeHash(pairs) {
    const text = new URLSearchParams(pairs).toString().replaceAll("%2C", ",");
    history.replaceState(null, "", text ? `#${text}` : location.pathname + location.search);
  }
  // What a filter is set to, as a reader sees it: the words of its choice, not its value.
  function choice(form, name, value) {
    const element = form.elements[name], options = element && element.options ? [...element.options] : [];
    return (options.find((option) => option.value === value) || { text: value }).text;
  }
  // A word of the filters, as pages write it.
  const token = (text) => encodeURIComponent(text).replace(/[!'()*]/g, (c) => `%${c.charCodeAt(0).toString(16).toUpperCase()}`);
  // A table of cells is one stop for the Tab key; arrows go from cell to cell.
  function rove(body, link = body.querySelector("a")) {
    for (const other of body.querySelectorAll("a")) other.tabIndex = -1;
    if (link) link.tabIndex = 0;
  }
  function steer(event) {
    const cell = event.target.closest("td, th"), step = { ArrowRight: [1, 0], ArrowLeft: [-1, 0], ArrowDown: [0, 1], ArrowUp: [0, -1] }[event.key];
    if (!cell || event.altKey || event.ctrlKey || event.metaKey) return;
    const body = event.currentTarget, columns = [...cell.parentElement.children], x = columns.indexOf(cell), y = [...body.rows].indexOf(cell.parentElement);
    let to = null;
    if (step) {
      for (let i = x + step[0], j = y + step[1]; !to && body.rows[j] && body.rows[j].cells[i]; i += step[0], j += step[1]) to = body.rows[j].cells[i].querySelector("a");
    } else if (event.key === "Home") to = columns[0].querySelector("a");
    else if (event.key === "End") to = columns.reverse().map((c) => c.querySelector("a")).find(Boolean);
    else return;
    event.preventDefault();
    if (to) to.focus();
  }
  for (const body of document.querySelectorAll(".grid tbody")) {
    body.addEventListener("focusin", (event) => { const link = event.target.closest("a"); if (link) rove(body, link); });
    body.addEventListener("keydown", steer);
    rove(body);
  }
  return { data, plural, readHash, writeHash, choice, token, rove, root };
})();

(() => { // the search
  const box = document.getElementById("search"), frame = document.querySelector(".results"), list = document.getElementById("results");
  const told = frame.querySelector("[role=status]");
  const MOST = 12, WEIGHTS = { GPU: 0, op: 1, model: 2, run: 3 };
  let lines = null, at = -1, turn = 0;

  async function load() {
    const names = await rocmAuditSite.data("search");
    const shards = await Promise.all(names.map((name) => rocmAuditSite.data(name)));
    lines = shards.flat().map(([kind, name, address, more]) => ({ kind, name, address, more, text: `${name} ${more}`.toLowerCase() }));
  }
  // Every word must be there; what begins with the first word goes before what only holds it.
  function found(words) {
    const hits = [];
    for (const line of lines) {
      if (!words.every((word) => line.text.includes(word))) continue;
      const short = line.name.toLowerCase().replace(/^aten::/, "");
      hits.push({ line, rank: [short.split(".")[0] === words[0] ? 0 : short.startsWith(words[0]) ? 1 : 2, WEIGHTS[line.kind], short.length] });
    }
    hits.sort((a, b) => a.rank[0] - b.rank[0] || a.rank[1] - b.rank[1] || a.rank[2] - b.rank[2]);
    return hits.map((hit) => hit.line);
  }
  function option(line, i) {
    const item = document.createElement("li"), link = document.createElement("span"), name = document.createElement("bdi");
    item.id = `result-${i}`;
    item.setAttribute("role", "option");
    item.dataset.address = rocmAuditSite.root + line.address;
    const kind = document.createElement("span"), more = document.createElement("span");
    kind.className = "kind"; kind.textContent = line.kind;
    name.textContent = line.name;
    link.className = "name"; link.append(name);
    more.className = "fine"; more.textContent = line.more;
    item.append(kind, link, more);
    item.addEventListener("mousedown", (event) => { event.preventDefault(); go(item); });
    return item;
  }
  const go = (item) => { location.href = item.dataset.address; };
  function mark(i) {
    const items = [...list.children];
    at = items.length ? (i + items.length) % items.length : -1;
    items.forEach((item, n) => item.setAttribute("aria-selected", String(n === at)));
    if (at >= 0) { box.setAttribute("aria-activedescendant", items[at].id); items[at].scrollIntoView({ block: "nearest" }); }
    else box.removeAttribute("aria-activedescendant");
  }
  function close() {
    frame.hidden = true;
    box.setAttribute("aria-expanded", "false");
    box.removeAttribute("aria-activedescendant");
  }
  async function show() {
    const words = box.value.trim().toLowerCase().split(/\s+/).filter(Boolean), mine = ++turn;
    if (!words.length) return close();
    if (!lines) {
      try { await load(); } catch (e) { lines = []; told.textContent = "The files of the search are not there."; }
    }
    if (mine !== turn) return;
    const hits = found(words);
    list.replaceChildren(...hits.slice(0, MOST).map(option));
    told.textContent = hits.length > MOST ? `${MOST} of ${rocmAuditSite.plural(hits.length, "result")}` : hits.length ? rocmAuditSite.plural(hits.length, "result") : "Nothing by that name.";
    frame.hidden = false;
    box.setAttribute("aria-expanded", String(hits.length > 0));
    mark(hits.length ? 0 : -1);
  }
  box.addEventListener("focus", () => { if (!lines) load().catch(() => {}); });
  box.addEventListener("input", show);
  box.addEventListener("blur", close);
  box.addEventListener("keydown", (event) => {
    if (event.key === "ArrowDown" || event.key === "ArrowUp") {
      event.preventDefault();
      if (frame.hidden) show(); else mark(at + (event.key === "ArrowDown" ? 1 : -1));
    } else if (event.key === "Enter") {
      event.preventDefault();
      if (!frame.hidden && at >= 0) go(list.children[at]);
    } else if (event.key === "Escape") {
      event.preventDefault();
      if (frame.hidden) { box.value = ""; box.blur(); } else close();
    }
  });
  addEventListener("keydown", (event) => {
    if (event.key !== "/" || event.ctrlKey || event.metaKey || event.altKey || event.target.closest("input, select, textarea")) return;
    event.preventDefault();
    box.focus();
    box.select();
  });
})();

(() => { // the theme
  const button = document.getElementById("theme"), html = document.documentElement;
  const systemDark = matchMedia("(prefers-color-scheme: dark)");
  const isDark = () => (html.dataset.theme || (systemDark.matches ? "dark" : "light")) === "dark";
  const show = () => { button.textContent = isDark() ? "Light theme" : "Dark theme"; };
  button.addEventListener("click", () => {
    html.dataset.theme = isDark() ? "light" : "dark";
    try { localStorage.setItem("rocm-audit-theme", html.dataset.theme); } catch (e) { /* not kept, no harm */ }
    show();
  });
  systemDark.addEventListener("change", show);
  show();
})();

(() => { // snippets: where the site is published is known once it is
  const here = location.protocol.startsWith("http") ? new URL(rocmAuditSite.root || ".", location.href).href.replace(/\/$/, "") : "";
  for (const button of document.querySelectorAll(".copy")) {
    const source = document.getElementById(button.dataset.copies), label = button.textContent;
    if (here) source.textContent = source.textContent.replaceAll("(SITE/", `(${here}/`);
    button.addEventListener("click", async () => {
      try {
        await navigator.clipboard.writeText(source.textContent);
        button.textContent = "Copied";
      } catch (e) { // not allowed here: the reader copies what is selected
        source.closest("details").open = true;
        getSelection().selectAllChildren(source);
        button.textContent = "Selected: press Ctrl+C";
      }
      setTimeout(() => { button.textContent = label; }, 2000);
    });
  }
})();
