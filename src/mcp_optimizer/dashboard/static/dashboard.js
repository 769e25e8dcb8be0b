// Live updates of the page: events as they happen, and the figures; sorting of tables. Text is only ever set as text.
"use strict";

(() => {
  const live = document.querySelector("#live tbody");
  const state = document.querySelector("#live-state");
  const pause = document.querySelector("#pause");
  const MOST = 15;
  let paused = false;
  let waiting = false;

  const cell = (row, text, kind) => {
    const made = row.insertCell();
    if (kind) made.className = kind;
    made.append(text);
    return made;
  };

  const mark = (text, kind) => {
    const made = document.createElement("span");
    made.className = kind;
    made.textContent = text;
    return made;
  };

  const show = (event) => {
    const row = live.insertRow(0);
    row.className = "new";
    const time = document.createElement("time");
    time.dateTime = event.at;
    time.textContent = event.at.slice(11, 19);
    time.title = event.gateway;
    cell(row, time);
    cell(row, event.kind);
    const which = cell(row, "");
    if (event.href) {
      const link = document.createElement("a");
      link.href = event.href;
      link.textContent = event.which;
      which.append(link);
    } else {
      which.append(event.which);
    }
    which.append(" ", mark(event.client, "note"));
    if (event.outcome !== "ok") which.append(" ", mark(event.outcome, "mark bad"));
    if (event.cached) which.append(" ", mark("cached", "mark"));
    if (event.truncated) which.append(" ", mark("cut", "mark"));
    cell(row, event.tokens.toLocaleString("en"), "n");
    cell(row, Math.round(event.milliseconds).toLocaleString("en"), "n");
    while (live.rows.length > MOST) live.deleteRow(-1);
  };

  // Soon after an event, and again when it is quiet, because the summary may be a few seconds old.
  let quiet;
  const news = () => {
    clearTimeout(quiet);
    quiet = setTimeout(refresh, 6000);
    if (waiting) return;
    waiting = true;
    setTimeout(() => { waiting = false; refresh(); }, 1500);
  };

  const refresh = async () => {
    const answer = await fetch(`/figures${location.search}`, { credentials: "same-origin" });
    if (!answer.ok) return;
    const fresh = new DOMParser().parseFromString(await answer.text(), "text/html").querySelector("#figures");
    const old = document.querySelector("#figures");
    const opened = old?.querySelector("details")?.open;
    if (fresh && old) {
      old.replaceWith(fresh);
      const details = fresh.querySelector("details");
      if (details && opened) details.open = true;
    }
  };

  if (live && "EventSource" in window) {
    const source = new EventSource("/events");
    source.onopen = () => { state.textContent = "connected"; };
    source.onerror = () => { state.textContent = "connecting again"; };
    source.onmessage = (message) => {
      if (paused) return;
      show(JSON.parse(message.data));
      news();
    };
    pause.hidden = false;
    pause.addEventListener("click", () => {
      paused = !paused;
      pause.setAttribute("aria-pressed", String(paused));
      pause.textContent = paused ? "Resume" : "Pause";
      if (!paused) refresh();
    });
  }

  // The page of a server: its state and its log, as they are now. What did not change is left alone.
  const PAUSE = 2000;
  const log = document.querySelector("#log");
  const atEnd = () => log.scrollHeight - log.scrollTop - log.clientHeight < 8;

  const look = async (address) => {
    const answer = await fetch(address, { credentials: "same-origin" });
    if (!answer.ok) return answer.status !== 404 && answer.status !== 401;
    const fresh = new DOMParser().parseFromString(await answer.text(), "text/html");
    const old = document.querySelector("#now");
    const found = fresh.querySelector("#now");
    if (found && found.outerHTML !== old.outerHTML && !old.contains(document.activeElement)) old.replaceWith(found);
    const text = fresh.querySelector("#log")?.textContent;
    const selected = log.contains(document.getSelection()?.anchorNode) && !document.getSelection().isCollapsed;
    if (text !== undefined && text !== log.textContent && !selected) {
      const follows = atEnd();
      log.textContent = text;
      if (follows) log.scrollTop = log.scrollHeight;
    }
    return true;
  };

  const watch = async (address) => {
    let goesOn = true;
    try {
      if (!document.hidden) goesOn = await look(address);
    } catch {
      // The gateway is not there: it may come back.
    }
    if (goesOn) setTimeout(watch, PAUSE, address);
  };

  const now = document.querySelector("#now[data-live]");
  if (now && log) {
    log.scrollTop = log.scrollHeight;
    setTimeout(watch, PAUSE, now.dataset.live);
  }

  // Tables: a click on a title sorts the rows that are there, and long ones can be narrowed down.
  const LONG = 8;
  const value = (row, at) => {
    const cell = row.cells[at];
    const text = (cell?.querySelector("time")?.dateTime || cell?.textContent || "").trim();
    const digits = text.replace(/[,\s%]/g, "");
    return cell?.classList.contains("n") ? (digits === "" || digits === "–" ? -1 : parseFloat(digits)) : text.toLowerCase();
  };
  const compared = (one, other) => (typeof one === "number" ? one - other : one.localeCompare(other));

  const sortable = (table) => {
    const body = table.tBodies[0];
    table.querySelectorAll("thead th").forEach((title, at) => {
      if (!title.textContent.trim()) return;
      const button = document.createElement("button");
      button.type = "button";
      button.append(...title.childNodes);
      title.append(button);
      button.addEventListener("click", () => {
        const before = title.getAttribute("aria-sort");
        // Numbers are wanted largest first.
        const first = title.classList.contains("n") ? "descending" : "ascending";
        const next = !before ? first : before === "ascending" ? "descending" : "ascending";
        table.querySelectorAll("th[aria-sort]").forEach((other) => other.removeAttribute("aria-sort"));
        title.setAttribute("aria-sort", next);
        const turn = next === "ascending" ? 1 : -1;
        body.append(...[...body.rows].sort((a, b) => turn * compared(value(a, at), value(b, at))));
      });
    });
  };

  const narrowable = (table) => {
    const field = document.createElement("input");
    field.type = "search";
    field.placeholder = "Only rows with …";
    field.setAttribute("aria-label", `Only rows with these words: ${table.caption?.textContent ?? ""}`);
    field.addEventListener("input", () => {
      const words = field.value.toLowerCase().split(/\s+/).filter(Boolean);
      for (const row of table.tBodies[0].rows) {
        const text = row.textContent.toLowerCase();
        row.hidden = !words.every((word) => text.includes(word));
      }
    });
    const line = document.createElement("div");
    line.className = "narrowing";
    line.append(field);
    table.parentElement.before(line);
  };

  for (const table of document.querySelectorAll("main table:not(.events)")) {
    const rows = table.tBodies[0]?.rows.length ?? 0;
    if (rows > 1) sortable(table);
    if (rows > LONG) narrowable(table);
  }

  document.addEventListener("keydown", (event) => {
    const inField = /^(input|textarea|select)$/i.test(event.target.tagName);
    if (event.key === "/" && !inField && !event.ctrlKey && !event.metaKey && !event.altKey) {
      event.preventDefault();
      document.querySelector("#q").focus();
    }
  });
})();
