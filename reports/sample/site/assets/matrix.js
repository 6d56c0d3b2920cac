"use strict";
// The matrix with all stacks and dtypes, from files of data that are taken once a reader filters. The state lives in the
// address: #status=divergent&q=mm&kind=gemm&dtype=float16&gpu=SLUG&rocm=ROCm%207.2&torch=2.13.0&evidence=measured
// &versions=all&rows=dtype&page=2
(() => {
  const { data, plural, readHash, writeHash, choice, rove, root } = rocmAuditSite;
  const $ = (id) => document.getElementById(id);
  const table = $("matrix"), form = $("filters"), body = table.tBodies[0], head = table.tHead, pager = document.querySelector(".pager");
  const MOST_ROWS = 100, MOST_CELLS = 2000, NAMES = ["q", "kind", "dtype", "gpu", "rocm", "torch", "evidence", "versions", "rows"], TROUBLES = 4;
  const LEVELS = ["measured", "stand-in", "simulated", "predicted"];
  let meta = null, ops = [], page = 1, turn = 0;

  async function load() {
    if (meta) return;
    const found = await data(`matrix?${form.dataset.version}`), shards = await Promise.all(found.shards.map((name) => data(`${name}?${form.dataset.version}`)));
    ops = shards.flat().map(([op, slug, dtypes, kind]) => ({ op, slug, dtypes, kind, text: op.toLowerCase(), cells: null }));
    meta = found;
  }
  // Of one op: (dtype, cells by stack).
  function unpack(op) {
    if (op.cells) return op.cells;
    op.cells = op.dtypes.map(([dtype, signs, counts]) => {
      const cells = new Map(), numbers = counts.split(",");
      let next = 0;
      for (let i = 0; i < signs.length; i += 1) {
        if (signs[i] === ".") continue;
        const varies = signs[i] >= "a", [n, bad = 0, unknown = 0] = numbers[next].split("/").map(Number);
        cells.set(i, { rank: varies ? signs.charCodeAt(i) - 97 : Number(signs[i]), n, bad, unknown, varies });
        next += 1;
      }
      return [dtype, cells];
    });
    return op.cells;
  }
  function merged(op, stacks, dtype) {
    const found = new Map();
    for (const [name, cells] of unpack(op)) {
      if (dtype && name !== dtype) continue;
      for (const i of stacks) {
        const cell = cells.get(i), known = found.get(i);
        if (!cell) continue;
        found.set(i, known ? { rank: Math.min(known.rank, cell.rank), n: known.n + cell.n, bad: known.bad + cell.bad, unknown: known.unknown + cell.unknown, varies: known.varies || cell.varies } : cell);
      }
    }
    return found;
  }
  // Rows of an op: one over all its dtypes, or one for each; those that were asked for.
  const rowsOf = (op, stacks, want) => want.rows !== "dtype" ? [{ op, dtype: want.dtype, cells: merged(op, stacks, want.dtype) }]
    : unpack(op).filter(([name]) => !want.dtype || name === want.dtype).map(([name]) => ({ op, dtype: name, cells: merged(op, stacks, name) }));
  // Troubles first, measured before all else: as the page itself was ordered.
  function trouble(cells) {
    const ranks = LEVELS.map(() => TROUBLES);
    let unknown = 1;
    for (const [i, cell] of cells) {
      const level = LEVELS.indexOf(meta.evidenceOrder[i]);
      if (cell.rank < TROUBLES) ranks[level] = Math.min(ranks[level], cell.rank);
      if (cell.rank === TROUBLES) unknown = 0;
    }
    return [...ranks, unknown];
  }
  const wanted = () => {
    const state = new FormData(form), want = { status: state.getAll("status") };
    for (const name of NAMES) want[name] = state.get(name) || "";
    want.words = want.q.trim().toLowerCase().split(/\s+/).filter(Boolean);
    return want;
  };
  function stacksOf(want) {
    const all = want.versions === "all" ? meta.stacks.map((_, i) => i) : meta.newest;
    const named = want.rocm || want.torch ? meta.stacks.map((_, i) => i) : all; // a version was asked for by its name
    return named.filter((i) => {
      const s = meta.stacks[i];
      return (!want.gpu || s.gpuSlug === want.gpu) && (!want.rocm || s.runtime === want.rocm) && (!want.torch || s.torch === want.torch)
        && (!want.evidence || s.evidence === want.evidence);
    });
  }
  function groupsOf(stacks) {
    const groups = new Map();
    for (const i of stacks) {
      const s = meta.stacks[i], key = `${s.gpuSlug} ${s.evidence}`;
      groups.set(key, [...(groups.get(key) || []), i]);
    }
    for (const group of groups.values()) group.reverse(); // newest first
    return [...groups.values()];
  }
  const torchLabel = (s) => (/^\d/.test(s.torch) ? `torch ${s.torch}` : s.torch);
  const make = (tag, className, text) => {
    const element = document.createElement(tag);
    if (className) element.className = className;
    if (text !== undefined) element.textContent = text;
    return element;
  };
  function drawHead(groups) {
    const first = make("tr"), second = make("tr"), corner = make("th", "corner", "Operator");
    corner.scope = "col"; corner.rowSpan = 2;
    first.append(corner);
    for (const group of groups) {
      const s = meta.stacks[group[0]], cell = make("th", "gpu"), link = make("a"), name = make("bdi", "", s.gpu);
      cell.scope = "colgroup"; cell.colSpan = group.length;
      link.href = `${root}gpus/${s.gpuSlug}.html`;
      link.append(name);
      cell.append(link, make("span", `tag ${s.texture}`, s.evidence));
      first.append(cell);
      for (const i of group) {
        const version = make("th", "version");
        version.scope = "col";
        if (meta.stacks[i].runtime) version.append(make("span", "", meta.stacks[i].runtime));
        version.append(make("span", "", torchLabel(meta.stacks[i])));
        second.append(version);
      }
    }
    head.replaceChildren(first, second);
  }
  function words(cell, evidence) {
    const said = [(evidence === "predicted" ? meta.predicted : meta.labels)[cell.rank], cell.bad ? `finding in ${cell.bad.toLocaleString("en")} of ${plural(cell.n, "case")}` : plural(cell.n, "case")];
    if (cell.unknown) said.push(`${cell.unknown.toLocaleString("en")} inconclusive`);
    if (cell.varies) said.push("runs disagree");
    return said.join(", ");
  }
  function drawCell(op, dtype, cell, i, want) {
    if (!cell) { const none = make("td", "c none"); none.append(make("span", "vh", "not tested")); return none; }
    const s = meta.stacks[i], status = meta.statuses[cell.rank];
    const off = want.status.length && !want.status.includes(status);
    const td = make("td", `c s-${status} ${s.texture}${off ? " off" : ""}`), link = make("a"), shown = make("b", "", `${cell.bad ? `${cell.bad.toLocaleString("en")}/` : ""}${cell.n.toLocaleString("en")}${cell.varies ? " ±" : ""}`);
    link.href = `${root}ops/${op.slug}.html#stack=${s.slug}${dtype ? `&dtype=${encodeURIComponent(dtype)}` : ""}`;
    link.title = `${words(cell, s.evidence)} · ${[s.gpu, s.runtime, torchLabel(s)].filter(Boolean).join(" · ")} · ${s.evidence}`;
    shown.setAttribute("aria-hidden", "true");
    link.append(shown);
    td.append(link);
    return td;
  }
  function drawRow({ op, dtype, cells }, groups, want) {
    const row = make("tr"), head = make("th"), link = make("a"), name = make("bdi", "opname");
    const [, namespace, short, overload] = /^((?:.*::)?)([^.]*)(.*)$/s.exec(op.op);
    head.scope = "row";
    link.href = `${root}ops/${op.slug}.html${want.rows === "dtype" ? `#dtype=${encodeURIComponent(dtype)}` : ""}`;
    name.append(make("span", namespace === "aten::" ? "aten" : "", namespace), make("b", "", short), make("wbr"), make("span", overload === ".default" ? "default" : "", overload));
    link.append(name);
    head.append(link);
    if (want.rows === "dtype") head.append(make("code", "dtype", dtype));
    row.append(head, ...groups.flat().map((i) => drawCell(op, dtype, cells.get(i), i, want)));
    return row;
  }
  async function show() {
    const want = wanted(), mine = ++turn;
    const filtered = want.status.length > 0 || NAMES.some((name) => want[name]);
    $("clear").hidden = !filtered;
    if (!meta && !filtered && page === 1) return;
    $("shown").textContent = "Loading …";
    try { await load(); } catch (e) { $("shown").textContent = "The files with the whole matrix are not there."; return; }
    if (mine !== turn) return;
    const stacks = stacksOf(want), among = new Set(want.status.map((status) => meta.statuses.indexOf(status))), found = [];
    for (const op of ops) {
      if ((want.kind && op.kind !== want.kind) || !want.words.every((word) => op.text.includes(word))) continue;
      for (const row of rowsOf(op, stacks, want)) {
        if (!row.cells.size || (among.size && ![...row.cells.values()].some((cell) => among.has(cell.rank)))) continue;
        found.push({ ...row, key: trouble(row.cells) });
      }
    }
    const byName = (a, b) => (a.op.op === b.op.op ? (a.dtype < b.dtype ? -1 : 1) : a.op.op < b.op.op ? -1 : 1);
    found.sort((a, b) => { for (let i = 0; i < a.key.length; i += 1) if (a.key[i] !== b.key[i]) return a.key[i] - b.key[i]; return byName(a, b); });
    const perPage = Math.max(20, Math.min(MOST_ROWS, Math.floor(MOST_CELLS / Math.max(1, stacks.length))));
    const pages = Math.max(1, Math.ceil(found.length / perPage)), groups = groupsOf(stacks);
    page = Math.min(page, pages);
    drawHead(groups);
    body.replaceChildren(...found.slice((page - 1) * perPage, page * perPage).map((row) => drawRow(row, groups, want)));
    const range = pages > 1 ? `, ${(page - 1) * perPage + 1} to ${Math.min(page * perPage, found.length)} shown` : "";
    const counted = want.rows === "dtype" ? `${plural(found.length, "row")} of ${plural(new Set(found.map((row) => row.op)).size, "op")}` : `${found.length.toLocaleString("en")} of ${plural(ops.length, "op")}`;
    $("shown").textContent = `${counted} on ${plural(stacks.length, "stack")}${range}`;
    $("nothing").hidden = found.length > 0;
    $("filter-note").hidden = !filtered;
    $("filter-note").textContent = `Filtered: ${[...readHash()].map(([name, value]) => `${name} ${choice(form, name, value)}`).join(", ")}. ${$("shown").textContent}.`;
    drawPager(pages);
    rove(body);
  }
  function drawPager(pages) {
    pager.replaceChildren(...(pages > 1 ? Array.from({ length: pages }, (_, i) => {
      const link = make("a", "", String(i + 1));
      link.href = "#";
      if (i + 1 === page) link.setAttribute("aria-current", "page");
      link.addEventListener("click", (event) => turnTo(event, i + 1));
      return link;
    }) : []));
  }
  async function turnTo(event, to) {
    event.preventDefault();
    page = to;
    if (!meta) { try { await load(); } catch (e) { location.href = event.target.href; return; } }
    await show();
    keep();
    table.closest(".scroll").scrollTo(0, 0);
    table.scrollIntoView();
  }
  [...pager.querySelectorAll("a")].forEach((link, i) => link.addEventListener("click", (event) => turnTo(event, i + 1)));

  function keep() {
    const want = wanted(), pairs = want.status.length ? [["status", want.status.join(",")]] : [];
    for (const name of NAMES) if (want[name].trim()) pairs.push([name, want[name].trim()]);
    if (page > 1) pairs.push(["page", String(page)]);
    writeHash(pairs);
  }
  async function restore() {
    const state = readHash(), statuses = (state.get("status") || "").split(",");
    for (const box of form.querySelectorAll("[name=status]")) box.checked = statuses.includes(box.value);
    for (const name of NAMES) {
      const element = form.elements[name], value = state.get(name) || "";
      element.value = element.tagName !== "SELECT" || [...element.options].some((o) => o.value === value) ? value : "";
    }
    page = Math.max(1, Number.parseInt(state.get("page") || "1", 10) || 1);
    await show();
  }

  let soon;
  form.addEventListener("input", () => { clearTimeout(soon); soon = setTimeout(() => { page = 1; keep(); show(); }, 80); });
  form.addEventListener("submit", (event) => event.preventDefault());
  form.addEventListener("reset", () => setTimeout(() => { page = 1; keep(); show(); }));
  addEventListener("hashchange", restore);
  if (location.hash) restore();
})();
