"use strict";
(() => {
  const all = (query, within = document) => Array.from(within.querySelectorAll(query));
  const link = document.getElementById("link");
  const parts = new Map();
  let [tag, over, reached] = ["", false, new Date()];

  const tell = (words) => {
    if (link.textContent !== words) link.textContent = words;
    link.hidden = !words;
  };

  // What somebody points at, selects or has focused is replaced later.
  const isUsed = (element) => {
    const selected = window.getSelection();
    return element.querySelector(".at")
      || (selected.type === "Range" && element.contains(selected.anchorNode));
  };
  const isAtEnd = (box) => box.scrollTop + box.clientHeight >= box.scrollHeight - 4;
  const replace = (element, html) => {
    const holder = document.createElement("template");
    holder.innerHTML = html;
    const made = holder.content.firstElementChild;
    const boxes = new Map(all("[role=region], [role=group]", element).map((box) => [
      box.getAttribute("aria-label"),
      { left: box.scrollLeft, top: box.scrollTop, end: isAtEnd(box), focused: box === document.activeElement },
    ]));
    const opened = new Set(all("details[open] table", element).map((table) => table.id));
    for (const details of all("details", made)) details.open = opened.has(details.querySelector("table").id);
    element.replaceWith(made);
    for (const box of all("[role=region], [role=group]", made)) {
      const before = boxes.get(box.getAttribute("aria-label"));
      if (!before) continue;
      box.scrollLeft = before.left;
      box.scrollTop = before.end ? box.scrollHeight : before.top;
      if (before.focused) box.focus({ preventScroll: true });
    }
  };
  const apply = () => {
    for (const [query, html] of parts) {
      const element = document.querySelector(query);
      if (isUsed(element)) continue;
      replace(element, html);
      parts.delete(query);
    }
  };

  const known = new Map();
  const take = ({ page, over: ended }) => {
    over = ended;
    document.title = page.title;
    document.querySelector("h1").textContent = page.title;
    document.querySelector(".subtitle").textContent = page.subtitle;
    for (const [query, html] of Object.entries(page.parts)) {
      if (known.get(query) === html) continue;
      known.set(query, html);
      parts.set(query, html);
    }
  };
  const poll = async () => {
    try {
      const reply = await fetch("state.json", { cache: "no-store", headers: tag ? { "If-None-Match": tag } : {} });
      if (reply.ok) {
        tag = reply.headers.get("ETag");
        take(await reply.json());
      } else if (reply.status !== 304) throw new Error(reply.statusText);
      reached = new Date();
      tell("");
    } catch {
      tell(`The command has ended or cannot be reached. This is the state of ${reached.toLocaleTimeString()}.`);
    }
    apply();
    if (!over || parts.size) setTimeout(over ? wait : poll, document.hidden ? 5000 : 1000);
  };
  const wait = () => {
    apply();
    if (parts.size) setTimeout(wait, 1000);
  };

  for (const box of all("#log pre")) box.scrollTop = box.scrollHeight;
  poll();
})();
