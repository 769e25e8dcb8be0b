// The theme that the visitor chose, before anything is painted. Without a choice, or without scripts, the system's.
"use strict";

(() => {
  const root = document.documentElement;
  const KEY = "mcp-optimizer-theme";
  const THEMES = ["light", "dark"];
  const chosen = () => {
    try {
      return localStorage.getItem(KEY);
    } catch {
      return null;
    }
  };
  const use = (theme) => {
    if (THEMES.includes(theme)) root.dataset.theme = theme;
    else delete root.dataset.theme;
  };
  use(chosen());
  addEventListener("DOMContentLoaded", () => {
    const choice = document.querySelector("#theme");
    if (!choice) return;
    choice.value = root.dataset.theme ?? "";
    choice.closest("[hidden]")?.removeAttribute("hidden");
    choice.addEventListener("change", () => {
      use(choice.value);
      try {
        localStorage.setItem(KEY, choice.value);
      } catch {
        // It lasts until the next page, then.
      }
    });
  });
})();
