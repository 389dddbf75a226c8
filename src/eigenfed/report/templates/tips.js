"use strict";
(() => {
  const tip = document.getElementById("tip");
  let at = null;

  const leave = () => {
    if (at) at.classList.remove("at");
    at = null;
    tip.hidden = true;
  };
  const point = (mark) => {
    leave();
    at = mark;
    mark.classList.add("at");
    tip.textContent = mark.dataset.tip;
    tip.hidden = false;
    const box = mark.getBoundingClientRect();
    const wide = document.documentElement.clientWidth;
    const left = Math.min(Math.max(box.left + box.width / 2 - tip.offsetWidth / 2, 4), wide - tip.offsetWidth - 4);
    const above = box.top - tip.offsetHeight - 6;
    tip.style.left = `${left + window.scrollX}px`;
    tip.style.top = `${(above > 0 ? above : box.bottom + 6) + window.scrollY}px`;
  };
  const steps = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 };
  document.addEventListener("pointerover", (event) => {
    const mark = event.target.closest(".chart .mark");
    if (mark) point(mark);
    else if (at && !event.target.closest(".chart")) leave();
  });
  document.documentElement.addEventListener("pointerleave", leave);
  document.addEventListener("focusout", leave);
  document.addEventListener("keydown", (event) => {
    const chart = event.target.closest(".chart");
    if (!chart) return;
    if (event.key === "Escape") leave();
    const found = Array.from(chart.querySelectorAll(".mark"));
    if (!(event.key in steps) || !found.length) return;
    event.preventDefault();
    const next = at ? found.indexOf(at) + steps[event.key] : 0;
    point(found[Math.min(Math.max(next, 0), found.length - 1)]);
  });
})();
