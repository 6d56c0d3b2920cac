"use strict";
// Sorts, filters and opens what stands in the page. The state lives in the URL hash, so that a view can be linked to:
// #status=divergent,unsupported&op=mm&q=gfx&phase=backward&dtype=float16&sort=-us, or #case-KEY and #op-ID.
(() => {
  const $ = (id) => document.getElementById(id);
  const table = $("ops"), form = $("filters"), sorters = [...table.querySelectorAll("thead button")];
  const ops = [...table.querySelectorAll("tbody.op")].map((body) => ({
    body, row: body.querySelector(".body"), toggle: body.querySelector(".toggle"), name: body.dataset.op.toLowerCase(),
    cases: [...body.querySelectorAll(".case")],
  }));
  const total = ops.reduce((n, op) => n + op.cases.length, 0);
  const texts = new Map(); // text of a case, read on the first search only
  const TEXT_FIRST = new Set(["op", "rank"]); // columns that start ascending; numbers start with the largest
  let sort = { by: "rank", down: false };

  const textOf = (op, item) => {
    if (!texts.has(item)) texts.set(item, `${op.name} ${item.textContent}`.toLowerCase());
    return texts.get(item);
  };
  const fields = () => {
    const data = new FormData(form);
    const word = (name) => (data.get(name) || "").trim().toLowerCase();
    return { status: new Set(data.getAll("status")), op: word("op"), q: word("q"), phase: word("phase"), dtype: word("dtype") };
  };
  const matches = (want, op, item) => {
    const d = item.dataset;
    return (!want.status.size || want.status.has(d.status)) && (!want.phase || d.phase === want.phase)
      && (!want.dtype || d.dtypes.toLowerCase().split(" ").includes(want.dtype)) && (!want.q || textOf(op, item).includes(want.q));
  };
  const open = (op, state) => {
    op.row.hidden = !state;
    op.toggle.setAttribute("aria-expanded", String(state));
    if (state) for (const item of op.row.querySelectorAll(".scroll")) item.tabIndex = 0; // what scrolls is for keys, too
  };

  function filter() {
    const want = fields();
    let nCases = 0, nOps = 0;
    for (const op of ops) {
      let n = 0;
      const named = !want.op || op.name.includes(want.op);
      for (const item of op.cases) {
        item.hidden = !(named && matches(want, op, item));
        if (!item.hidden) n += 1;
      }
      op.body.hidden = n === 0;
      nCases += n;
      nOps += n > 0;
    }
    const all = nCases === total;
    const plural = (n, word) => `${n.toLocaleString("en")} ${word}${n === 1 ? "" : "s"}`;
    $("shown").textContent = all ? `${plural(total, "case")} in ${plural(ops.length, "op")}`
      : `${nCases.toLocaleString("en")} of ${plural(total, "case")}, in ${plural(nOps, "op")}`;
    $("nothing").hidden = nCases > 0;
    $("clear").hidden = all;
    $("filter-note").hidden = all;
    $("filter-note").textContent = all ? "" : `Filtered: ${nCases} of ${total} cases are shown (${describe(want)}).`;
  }
  const describe = (want) => [...want.status, ...["op", "q", "phase", "dtype"].filter((k) => want[k]).map((k) => `${k} ${want[k]}`)].join(", ");

  function compare(a, b) {
    if (sort.by === "op") return a.op < b.op ? -1 : a.op > b.op ? 1 : 0;
    const [x, y] = [a[sort.by], b[sort.by]];
    if (!x || !y) return x ? -1 : y ? 1 : 0; // what was not measured goes last, whichever way
    const d = Number(x) - Number(y);
    return Number.isNaN(d) ? 0 : sort.down ? -d : d;
  }
  function order() {
    const sorted = [...ops].sort((a, b) => compare(a.body.dataset, b.body.dataset) * (sort.by === "op" && sort.down ? -1 : 1));
    for (const op of sorted) {
      if (sort.by !== "op" && sort.by !== "cases") op.row.firstElementChild.append(...[...op.cases].sort((a, b) => compare(a.dataset, b.dataset)));
      table.append(op.body);
    }
    for (const button of sorters) {
      const mine = button.dataset.sort === sort.by;
      button.parentElement.setAttribute("aria-sort", mine ? (sort.down ? "descending" : "ascending") : "none");
    }
  }

  function writeHash() {
    const want = fields(), parts = new URLSearchParams();
    if (want.status.size) parts.set("status", [...want.status].join(","));
    for (const name of ["op", "q", "phase", "dtype"]) if (want[name]) parts.set(name, want[name]);
    if (sort.by !== "rank" || sort.down) parts.set("sort", (sort.down ? "-" : "") + sort.by);
    const text = parts.toString().replaceAll("%2C", ",");
    history.replaceState(null, "", text ? `#${text}` : location.pathname);
  }
  function readHash() {
    const hash = location.hash.slice(1);
    if (!hash.includes("=")) return hash ? visit(hash) : undefined;
    const parts = new URLSearchParams(hash), statuses = (parts.get("status") || "").split(",");
    for (const box of form.querySelectorAll("[name=status]")) box.checked = statuses.includes(box.value);
    for (const name of ["op", "q"]) form.elements[name].value = parts.get(name) || "";
    for (const name of ["phase", "dtype"]) form.elements[name].value = [...form.elements[name].options].find((o) => o.value === parts.get(name))?.value || "";
    const by = (parts.get("sort") || "rank").replace(/^-/, "");
    if (sorters.some((b) => b.dataset.sort === by)) sort = { by, down: (parts.get("sort") || "").startsWith("-") };
    order();
    filter();
    if (arrived) $("operators").scrollIntoView();
  }
  function visit(id) {
    const op = ops.find((o) => o.body.id === id || o.cases.some((c) => c.id === id));
    if (!op) return;
    const target = op.body.id === id ? op.body : $(id);
    if (op.body.hidden || target.hidden) { form.reset(); filter(); }
    open(op, true);
    if (target !== op.body) { target.open = true; target.querySelector("summary").focus({ preventScroll: true }); }
    target.scrollIntoView();
  }

  let arrived = false;
  for (const op of ops) {
    open(op, false);
    op.toggle.addEventListener("click", () => open(op, op.row.hidden));
  }
  for (const button of sorters) {
    button.addEventListener("click", () => {
      const by = button.dataset.sort;
      sort = { by, down: sort.by === by ? !sort.down : !TEXT_FIRST.has(by) };
      order();
      writeHash();
    });
  }
  let waiting;
  form.addEventListener("input", () => {
    clearTimeout(waiting);
    waiting = setTimeout(() => { filter(); writeHash(); }, 80);
  });
  form.addEventListener("submit", (event) => event.preventDefault());
  form.addEventListener("reset", () => setTimeout(() => { filter(); writeHash(); }));
  const openAll = (state) => {
    for (const op of ops.filter((o) => !o.body.hidden)) {
      open(op, state);
      for (const item of op.cases) item.open = state && !item.hidden;
    }
  };
  $("expand").addEventListener("click", () => openAll(true));
  $("collapse").addEventListener("click", () => openAll(false));

  const systemDark = matchMedia("(prefers-color-scheme: dark)");
  const isDark = () => (document.documentElement.dataset.theme || (systemDark.matches ? "dark" : "light")) === "dark";
  const showTheme = () => { $("theme").textContent = isDark() ? "Light theme" : "Dark theme"; };
  $("theme").addEventListener("click", () => {
    document.documentElement.dataset.theme = isDark() ? "light" : "dark";
    try { localStorage.setItem("rocm-audit-theme", document.documentElement.dataset.theme); } catch (e) { /* not kept, no harm */ }
    showTheme();
  });
  systemDark.addEventListener("change", showTheme);
  showTheme();

  let closed = [];
  addEventListener("beforeprint", () => {
    closed = ops.flatMap((op) => (op.body.hidden ? [] : op.cases.filter((item) => !item.open && !item.hidden)));
    for (const item of closed) item.open = true;
  });
  addEventListener("afterprint", () => { for (const item of closed) item.open = false; });
  addEventListener("hashchange", readHash);
  filter();
  document.documentElement.classList.add("ready");
  readHash();
  arrived = true;
})();
