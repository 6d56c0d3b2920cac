"use strict";
// Before anything is drawn: the theme that the reader chose, and that scripts run here.
document.documentElement.classList.add("js");
try {
  const chosen = localStorage.getItem("rocm-audit-theme");
  if (chosen === "light" || chosen === "dark") document.documentElement.dataset.theme = chosen;
} catch (e) { /* storage is closed to files in some browsers */ }
