"use strict";
(() => {
  const all = (query, within = document) => Array.from(within.querySelectorAll(query));
  for (const controls of all(".controls")) controls.hidden = false;

  for (const group of all(".panels")) {
    const choice = group.querySelector("select");
    const show = () => all(".panel", group).forEach((panel, place) => {
      panel.hidden = place !== Number(choice.value);
    });
    choice.addEventListener("change", show);
    show();
  }

  const round = (span) => {
    const rough = span / 5;
    const unit = 10 ** Math.floor(Math.log10(rough));
    return [1, 2, 5, 10].map((m) => m * unit).find((step) => step >= rough * (1 - 1e-9));
  };
  const draw = (name, inside, attributes, text = "") => {
    const made = document.createElementNS("http://www.w3.org/2000/svg", name);
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
    made.textContent = text;
    inside.append(made);
  };
  for (const cloud of all(".cloud")) {
    const scatter = cloud.querySelector(".scatter");
    const ranges = scatter.dataset.ranges.split(";").map((pair) => pair.split(",").map(Number));
    const [left, right, top, bottom] = scatter.dataset.box.split(",").map(Number);
    const unpacked = new Map(all(".points", scatter).map((path) => {
      const bytes = Uint8Array.from(atob(path.dataset.scores), (letter) => letter.charCodeAt(0));
      const view = new DataView(bytes.buffer);
      return [path, (place) => view.getUint16(2 * place, true) / 65535];
    }));
    const number = (path) => atob(path.dataset.scores).length / 2 / ranges.length;
    const axis = (inside, which, low, high) => {
      const step = round(high - low);
      for (let place = Math.ceil(low / step); place <= Math.floor(high / step); place += 1) {
        const share = (place * step - low) / (high - low);
        const words = String(Number((place * step).toPrecision(6)));
        if (which === "x") {
          const x = left + share * (right - left);
          draw("line", inside, { x1: x, x2: x, y1: top, y2: bottom, class: "grid" });
          draw("text", inside, { x, y: bottom + 18.5, class: "tick", "text-anchor": "middle" }, words);
        } else {
          const y = bottom - share * (bottom - top);
          draw("line", inside, { x1: left, x2: right, y1: y, y2: y, class: "grid" });
          draw("text", inside, { x: left - 6, y: y + 4.5, class: "tick", "text-anchor": "end" }, words);
        }
      }
    };
    const across = cloud.querySelector("#points-horizontal");
    const up = cloud.querySelector("#points-vertical");
    const site = cloud.querySelector("#points-site");
    const redraw = () => {
      const [x, y] = [Number(across.value), Number(up.value)];
      const axes = scatter.querySelector(".axes");
      axes.replaceChildren();
      axis(axes, "x", ...ranges[x]);
      axis(axes, "y", ...ranges[y]);
      const name = { class: "axis-name" };
      draw("text", axes, { ...name, x: (left + right) / 2, y: bottom + 38.5, "text-anchor": "middle" }, `PC${x + 1}`);
      draw("text", axes, { ...name, x: left, y: 14.5 }, `PC${y + 1}`);
      for (const [path, value] of unpacked) {
        const rows = number(path);
        let line = "";
        for (let row = 0; row < rows; row += 1) {
          const dx = left + value(x * rows + row) * (right - left);
          const dy = bottom - value(y * rows + row) * (bottom - top);
          line += `M${dx.toFixed(1)} ${dy.toFixed(1)}h0`;
        }
        path.setAttribute("d", line);
      }
    };
    const choose = () => {
      for (const path of unpacked.keys()) {
        path.classList.toggle("chosen", site.value !== "" && path.dataset.site === site.value);
        path.classList.toggle("aside", site.value !== "" && path.dataset.site !== site.value);
      }
      scatter.append(...all(".chosen", scatter));
    };
    across.addEventListener("change", redraw);
    up.addEventListener("change", redraw);
    if (site) site.addEventListener("change", choose);
  }

  for (const table of all("table")) {
    const body = table.tBodies[0];
    const heads = all("thead th", table);
    heads.forEach((head, column) => {
      const button = document.createElement("button");
      button.type = "button";
      button.append(...head.childNodes);
      head.append(button);
      button.addEventListener("click", () => {
        const falling = head.getAttribute("aria-sort") === "ascending";
        for (const other of heads) other.removeAttribute("aria-sort");
        head.setAttribute("aria-sort", falling ? "descending" : "ascending");
        const key = (row) => row.cells[column].title || row.cells[column].textContent;
        const order = (a, b) => {
          const [one, two] = [key(a), key(b)];
          const apart = Number(one) - Number(two);
          return Number.isNaN(apart) ? one.localeCompare(two, "en", { numeric: true }) : apart;
        };
        const rows = Array.from(body.rows).sort((a, b) => (falling ? order(b, a) : order(a, b)));
        body.append(...rows);
      });
    });
  }
})();
