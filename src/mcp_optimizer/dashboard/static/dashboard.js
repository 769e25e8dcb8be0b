// Live updates of the page: events as they happen, and the figures. Text is only ever set as text.
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
    const answer = await fetch("/figures", { credentials: "same-origin" });
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

  document.addEventListener("keydown", (event) => {
    const inField = /^(input|textarea|select)$/i.test(event.target.tagName);
    if (event.key === "/" && !inField && !event.ctrlKey && !event.metaKey && !event.altKey) {
      event.preventDefault();
      document.querySelector("#q").focus();
    }
  });
})();
