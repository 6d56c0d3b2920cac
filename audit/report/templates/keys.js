// Single keys for what is done often, which can be turned off (WCAG 2.2, 2.1.4), and buttons that copy a text.
(() => {
  const $ = (id) => document.getElementById(id);
  const on = $("keys-on"), form = $("filters");
  try { on.checked = localStorage.getItem("rocm-audit-keys") !== "off"; } catch (e) { /* as it stands */ }
  on.addEventListener("change", () => { try { localStorage.setItem("rocm-audit-keys", on.checked ? "on" : "off"); } catch (e) { /* not kept */ } });

  const findings = () => [...document.querySelectorAll("#ops .op:not([hidden]) .case:not([hidden])")]
    .filter((item) => !["supported", "inconclusive"].includes(item.dataset.status));
  function step(by) {
    const all = findings();
    if (!all.length) return;
    const here = all.indexOf(document.activeElement.closest?.(".case"));
    const next = here < 0 ? (by > 0 ? 0 : all.length - 1) : (here + by + all.length) % all.length;
    location.hash = all[next].id;
    dispatchEvent(new Event("hashchange")); // now and not a moment later: the next key goes on from here
  }
  const typing = (target) => target.matches?.("input:not([type=checkbox]), select, textarea, [contenteditable]");
  addEventListener("keydown", (event) => {
    if (!on.checked || event.ctrlKey || event.altKey || event.metaKey) return;
    if (event.key === "Escape" && form.contains(event.target)) { form.reset(); return; }
    if (typing(event.target)) return;
    if (event.key === "/") { event.preventDefault(); form.elements.q.focus(); form.scrollIntoView({ block: "start" }); }
    else if (event.key === "n") step(1);
    else if (event.key === "p") step(-1);
  });

  document.addEventListener("click", async (event) => {
    const button = event.target.closest?.(".copy");
    if (!button) return;
    const source = $(button.dataset.copies), label = button.textContent;
    try {
      await navigator.clipboard.writeText(source.textContent);
      button.textContent = "Copied";
    } catch (e) { // a page from disk may not touch the clipboard: then the text is selected, to be copied by hand
      getSelection().selectAllChildren(source);
      button.textContent = document.execCommand("copy") ? "Copied" : "Selected: press Ctrl+C";
    }
    setTimeout(() => { button.textContent = label; }, 1600);
  });
})();
