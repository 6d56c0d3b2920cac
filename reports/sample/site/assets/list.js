"use strict";
// A list that a page begins and files of data go on with. It is filtered, sorted and turned over here; the state lives in
// the address: #status=divergent,unsupported&dtype=float16&q=mm&sort=-4&page=2, or #case-KEY.
(() => {
  const { data, plural, readHash, writeHash, choice, token } = rocmAuditSite;
  const $ = (id) => document.getElementById(id);
  const body = $("rows"), form = $("filters"), pager = document.querySelector(".pager");
  if (!body) return;
  const PAGE = Number(body.dataset.page);
  const total = Number(body.dataset.total), noun = body.dataset.noun;
  const sorters = [...document.querySelectorAll("[data-sort]")];
  let rows = [...body.children], left = body.dataset.shards.split(" ").filter(Boolean), sort = "", page = 1, turn = 0;
  const texts = new WeakMap(), facts = new WeakMap();

  async function loadAll() {
    if (!left.length) return;
    $("shown").textContent = "Loading …";
    const shards = await Promise.all(left.map(data));
    if (!left.length) return; // someone else was faster
    left = [];
    const holder = document.createElement(body.tagName === "TBODY" ? "tbody" : "div");
    for (const shard of shards) {
      const template = document.createElement("template");
      template.innerHTML = shard;
      holder.append(template.content);
    }
    rows = rows.concat([...holder.children]);
  }
  const textOf = (row) => {
    if (!texts.has(row)) texts.set(row, row.textContent.toLowerCase());
    return texts.get(row);
  };
  // What a row is: facts of its own, and facts that belong together, like the status on one stack.
  const factsOf = (row) => {
    if (!facts.has(row)) {
      const words = (text) => new Set(text.split(" ").filter(Boolean));
      facts.set(row, { own: words(row.dataset.f || ""), groups: (row.dataset.g || "").split("|").map(words) });
    }
    return facts.get(row);
  };
  function wanted() {
    const state = new FormData(form), facets = [];
    for (const name of new Set([...form.elements].map((element) => element.name).filter((name) => name && name !== "q"))) {
      const values = state.getAll(name).filter(Boolean);
      if (values.length) facets.push([name, values, values.map((value) => `${name}:${token(value)}`)]);
    }
    return { facets, words: (state.get("q") || "").trim().toLowerCase().split(/\s+/).filter(Boolean) };
  }
  function matches(row, want) {
    const { own, groups } = factsOf(row);
    const holds = (group) => want.facets.every(([, , tokens]) => tokens.some((word) => own.has(word) || group.has(word)));
    return groups.some(holds) && (!want.words.length || want.words.every((word) => textOf(row).includes(word)));
  }
  function keyOf(row, column) {
    const cell = row.children[column];
    return cell.dataset.v ?? cell.textContent.trim().toLowerCase();
  }
  function order(found) {
    if (!sort) return found;
    const down = sort.startsWith("-"), column = Number(sort.replace("-", ""));
    const keyed = found.map((row) => [row, keyOf(row, column)]);
    keyed.sort(([, a], [, b]) => {
      if (a === "" || b === "") return a === b ? 0 : a === "" ? 1 : -1; // what was not measured goes last, whichever way
      const x = Number(a), y = Number(b);
      const d = Number.isNaN(x) || Number.isNaN(y) ? (a < b ? -1 : a > b ? 1 : 0) : x === y ? 0 : x - y;
      return down ? -d : d;
    });
    return keyed.map(([row]) => row);
  }
  async function show() {
    const want = wanted(), filters = want.facets.length > 0 || want.words.length > 0, mine = ++turn;
    if (filters || sort || page > 1) {
      try { await loadAll(); } catch (e) { $("shown").textContent = "The files with the rest of this list are not there."; return; }
    }
    if (mine !== turn) return;
    const found = order(filters ? rows.filter((row) => matches(row, want)) : rows);
    const n = filters ? found.length : total, pages = Math.max(1, Math.ceil(n / PAGE));
    page = Math.min(page, pages);
    body.replaceChildren(...found.slice((page - 1) * PAGE, page * PAGE));
    const range = pages > 1 ? `, ${((page - 1) * PAGE + 1).toLocaleString("en")} to ${Math.min(page * PAGE, n).toLocaleString("en")} shown` : "";
    $("shown").textContent = (filters ? `${n.toLocaleString("en")} of ${plural(total, noun)}` : plural(total, noun)) + range;
    $("nothing").hidden = n > 0;
    $("clear").hidden = !filters;
    $("filter-note").hidden = !filters && pages === 1;
    $("filter-note").textContent = `Shown: ${$("shown").textContent}. ${filters ? `Filtered by ${describe(want)}.` : ""}`;
    pager.hidden = pages === 1;
    pager.querySelector("span").textContent = `${page} of ${pages}`;
    pager.querySelector("[data-turn='-1']").disabled = page === 1;
    pager.querySelector("[data-turn='1']").disabled = page === pages;
    for (const button of sorters) {
      const state = sort === button.dataset.sort ? "ascending" : sort === `-${button.dataset.sort}` ? "descending" : "none";
      button.parentElement.setAttribute("aria-sort", state);
    }
  }
  const describe = (want) => [...want.facets.map(([name, values]) => `${name} ${values.map((value) => choice(form, name, value)).join(" or ")}`), ...(want.words.length ? [want.words.join(" ")] : [])].join(", ");

  function keep() {
    const want = wanted(), pairs = want.facets.map(([name, values]) => [name, values.join(",")]);
    if (want.words.length) pairs.push(["q", want.words.join(" ")]);
    if (sort) pairs.push(["sort", sort]);
    if (page > 1) pairs.push(["page", String(page)]);
    writeHash(pairs);
  }
  async function restore() {
    if (location.hash && !location.hash.includes("=")) return visit(location.hash.slice(1)); // keys need no decoding
    const state = readHash();
    for (const element of form.elements) {
      if (!element.name) continue;
      const value = state.get(element.name) || "";
      if (element.type === "checkbox") element.checked = value.split(",").includes(element.value);
      else if (element.tagName === "SELECT") element.value = [...element.options].some((o) => o.value === value) ? value : "";
      else element.value = value;
    }
    const by = state.get("sort") || "";
    sort = sorters.some((button) => button.dataset.sort === by.replace("-", "")) ? by : "";
    page = Math.max(1, Number.parseInt(state.get("page") || "1", 10) || 1);
    await show();
    if (location.hash) body.closest("section, main").scrollIntoView();
  }
  async function visit(id) {
    if (!$(id) && id.startsWith("case-")) {
      form.reset();
      try { await loadAll(); } catch (e) { return; }
      const i = rows.findIndex((row) => row.id === id);
      if (i < 0) return show();
      page = Math.floor(i / PAGE) + 1;
      await show();
    }
    const target = $(id);
    if (!target) return;
    if (target.tagName === "DETAILS") { target.open = true; target.querySelector("summary").focus({ preventScroll: true }); }
    target.scrollIntoView();
    if (id.startsWith("case-")) { for (const other of body.querySelectorAll(".here")) other.classList.remove("here"); target.classList.add("here"); }
  }

  let soon;
  form.addEventListener("input", () => { clearTimeout(soon); soon = setTimeout(() => { page = 1; show(); keep(); }, 80); });
  form.addEventListener("submit", (event) => event.preventDefault());
  form.addEventListener("reset", () => setTimeout(() => { page = 1; show(); keep(); }));
  for (const button of sorters) {
    button.addEventListener("click", () => {
      const by = button.dataset.sort, numbers = button.parentElement.classList.contains("num");
      sort = sort === by ? `-${by}` : sort === `-${by}` ? by : numbers ? `-${by}` : by;
      page = 1;
      show();
      keep();
    });
  }
  for (const button of pager.querySelectorAll("[data-turn]")) {
    button.addEventListener("click", async () => { page += Number(button.dataset.turn); await show(); keep(); body.scrollIntoView(); });
  }
  let closed = [];
  addEventListener("beforeprint", () => { closed = [...body.querySelectorAll("details:not([open])")]; for (const item of closed) item.open = true; });
  addEventListener("afterprint", () => { for (const item of closed) item.open = false; });
  addEventListener("hashchange", restore);
  if (location.hash) restore(); else show();
})();
