// One kind of chart for everything: points with intervals, lines, steps, bands, upright lines, lanes.
// Drawn anew at the width that there is, so words keep their size on a phone.
"use strict";

const MARGIN = { right: 18, top: 14, bottom: 46 };
const LANE = 18;
const WORD = 6.6; // pixels a character of an anchor's words takes

class Chart {
  // host: element to draw into; spec: () => description of what to show now (see report.js).
  constructor(host, spec) {
    this.host = host;
    this.spec = spec;
    this.at = null; // index of the point that the keyboard or pointer is on
    this.svg = svg("svg", { class: "chart", tabindex: 0, role: "application" });
    this.tip = el("div", { class: "tip", role: "status", "aria-live": "polite", hidden: "" });
    host.append(this.svg, this.tip);
    this.svg.addEventListener("pointermove", (event) => this.hover(event));
    this.svg.addEventListener("pointerdown", (event) => this.hover(event));
    this.svg.addEventListener("pointerleave", () => this.show(null));
    this.svg.addEventListener("blur", () => this.show(null));
    this.svg.addEventListener("keydown", (event) => this.key(event));
    new ResizeObserver(() => this.draw()).observe(host);
  }

  draw() {
    const now = (this.now = this.spec());
    const width = Math.max(260, this.host.clientWidth);
    const lanes = now.lanes || [];
    const inner = Math.max(190, Math.min(380, width * 0.5));
    const ticks = scale(now.y, inner, 0);
    const left = 34 + 7.4 * Math.max(...ticks.ticks.map((value) => ticks.words(value).length));
    this.x = scale(now.x, left, width - MARGIN.right);
    const rows = anchorRows(now.uprights || [], now.x, this.x, width);
    const top = MARGIN.top + 16 * rows.count;
    const bottom = MARGIN.bottom + (lanes.length ? 10 + LANE * lanes.length : 0);
    const height = top + inner + bottom;
    this.box = { left, top, right: width - MARGIN.right, bottom: top + inner };
    this.y = scale(now.y, this.box.bottom, top);
    this.spots = [];
    this.svg.replaceChildren();
    this.svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
    this.svg.setAttribute("height", height);
    this.svg.setAttribute(
      "aria-label",
      `${now.label}. Arrow keys: left and right along a curve, up and down between curves.`,
    );
    this.axes();
    this.body = svg("g");
    this.svg.append(svg("defs", {}, this.clip()), this.body);
    if (now.y.zero) this.body.append(svg("path", { class: "axis", d: `M${this.box.left} ${this.y(0)}H${this.box.right}` }));
    if (now.diagonal) this.diagonal();
    for (const level of now.levels || []) this.level(level);
    for (const series of now.series) this.series(series);
    lanes.forEach((lane, row) => this.lane(lane, row));
    this.mark = svg("circle", { r: 9, class: "mark", visibility: "hidden" });
    this.svg.append(this.mark);
    this.anchors(now.uprights || [], width);
    this.show(null);
  }

  // What is drawn of a curve ends at the axes, but for half a marker.
  clip() {
    const { left, right, top, bottom } = this.box;
    this.clipId = `clip-${this.host.id}`;
    const frame = { x: left - 7, y: top - 7, width: right - left + 14, height: bottom - top + 14 };
    return svg("clipPath", { id: this.clipId }, svg("rect", frame));
  }

  axes() {
    const { left, right, top, bottom } = this.box;
    const frame = svg("g", { class: "axes" });
    for (const value of this.y.ticks) {
      const y = this.y(value);
      frame.append(
        svg("path", { class: "grid", d: `M${left} ${y}H${right}` }),
        svg("text", { x: left - 8, y: y + 4, "text-anchor": "end" }, this.y.words(value)),
      );
    }
    let free = -Infinity;
    for (const value of this.x.ticks) {
      const x = this.x(value);
      const words = this.x.words(value);
      frame.append(svg("path", { class: "grid", d: `M${x} ${top}V${bottom}` }));
      if (x - 3.6 * words.length < free) continue;
      free = x + 3.6 * words.length + 4;
      frame.append(svg("text", { x, y: bottom + 18, "text-anchor": "middle" }, words));
    }
    frame.append(
      svg("path", { class: "axis", d: `M${left} ${top}V${bottom}H${right}` }),
      svg("text", { class: "name", x: (left + right) / 2, y: bottom + 38, "text-anchor": "middle" }, this.now.x.name),
      svg(
        "text",
        { class: "name", transform: `translate(13 ${(top + bottom) / 2}) rotate(-90)`, "text-anchor": "middle" },
        this.now.y.name,
      ),
    );
    this.svg.append(frame);
  }

  diagonal() {
    const { min, max } = this.now.x;
    const d = `M${this.x(min)} ${this.y(min)}L${this.x(max)} ${this.y(max)}`;
    this.body.append(svg("path", { class: "upright", d }));
  }

  // A bound: a dashed line across, its words at its left end, below it where there is no room above.
  level({ y, label }) {
    const at = this.y(y);
    if (at < this.box.top) return;
    const words = { class: "bound", x: this.box.left + 5, y: at < this.box.top + 14 ? at + 14 : at - 5 };
    this.body.append(svg("path", { class: "upright", d: `M${this.box.left} ${at}H${this.box.right}` }), svg("text", words, label));
  }

  series(series) {
    const clip = `url(#${this.clipId})`;
    const group = svg("g", { class: `series ${series.look}`, "data-key": series.key, "clip-path": clip });
    const at = series.points.map((point) => [this.x(point.x), this.y(point.y)]);
    const strong = at.filter((_, i) => !series.points[i].faint);
    if (series.band) group.append(this.band(series));
    if (strong.length < at.length) group.append(svg("path", { class: "line faint", d: path(at) }));
    const line = series.step ? steps(at) : path(strong);
    if (!series.dots) group.append(svg("path", { class: "line", d: line, "stroke-dasharray": series.dash }));
    series.points.forEach((point, i) => {
      if (!series.band) this.whiskers(group, point, at[i]);
      if (series.marker) {
        const dot = { class: point.faint ? "dot faint" : "dot", transform: `translate(${at[i].join(" ")})` };
        group.append(glyph(series.marker, dot));
      }
      if (point.tip) this.spots.push({ series, point, x: at[i][0], y: at[i][1] });
    });
    this.body.append(group);
  }

  band(series) {
    const known = series.points.filter((point) => point.low !== null && point.low !== undefined);
    const up = known.map((point) => [this.x(point.x), this.y(point.high)]);
    const down = known.map((point) => [this.x(point.x), this.y(point.low)]).reverse();
    return svg("path", { class: "band", d: known.length ? `${path([...up, ...down])}Z` : "" });
  }

  whiskers(group, point, [x, y]) {
    const add = (d) => group.append(svg("path", { class: "whisker", d }));
    if (point.low !== null && point.low !== undefined) add(`M${x} ${this.y(point.low)}V${this.y(point.high)}`);
    if (point.left !== null && point.left !== undefined) add(`M${this.x(point.left)} ${y}H${this.x(point.right)}`);
  }

  // Where a policy lives on the x axis: one strip, darker where it is more often, a bar at the mean.
  lane(lane, row) {
    const top = this.box.bottom + MARGIN.bottom + 6 + LANE * row;
    const middle = top + LANE / 2 - 1;
    const most = Math.max(...lane.bins.map((bin) => bin[2]));
    const group = svg("g", { class: `series ${lane.look}`, "data-key": lane.key });
    group.append(
      svg("path", { class: "grid", d: `M${this.box.left} ${middle}H${this.box.right}` }),
      glyph(lane.marker, { class: "dot", transform: `translate(${this.box.left - 14} ${middle})` }),
    );
    for (const [small, large, share] of lane.bins) {
      const [from, to] = [this.x(small), this.x(large)];
      const width = Math.max(9, to - from);
      const opacity = 0.25 + 0.75 * Math.sqrt(share / most);
      group.append(svg("rect", { class: "bin", x: (from + to - width) / 2, y: top, width, height: LANE - 4, opacity }));
    }
    const mean = this.x(lane.mean);
    group.append(svg("path", { class: "mean", d: `M${mean} ${top - 2}V${top + LANE - 2}` }));
    this.body.append(group);
    this.spots.push({ series: lane, point: { tip: lane.tip }, x: mean, y: middle, strip: [top - 2, top + LANE - 2] });
  }

  anchors(uprights, width) {
    const { top, bottom } = this.box;
    const rows = anchorRows(uprights, this.now.x, this.x, width);
    uprights.forEach((upright, i) => {
      const x = Math.min(this.x(upright.x), this.box.right);
      const y = top - 5 - 16 * rows.row[i];
      const words = svg("text", { x: rows.start[i], y }, upright.label);
      const group = svg("g", { class: `anchor${upright.selected ? " selected" : ""}` });
      if (upright.x <= this.now.x.max) group.append(svg("path", { class: "upright", d: `M${x} ${y - 11}V${bottom}` }));
      group.append(words);
      if (upright.select) {
        fill(group, { role: "button", tabindex: 0, "aria-pressed": String(upright.selected) }, []);
        group.setAttribute("aria-label", `Read at ${upright.label}`);
        group.append(svg("path", { class: "hit", d: `M${x} ${y - 11}V${bottom}` }));
        group.addEventListener("click", upright.select);
        group.addEventListener("keydown", (event) => {
          if (event.key !== "Enter" && event.key !== " ") return;
          event.preventDefault();
          event.stopPropagation();
          upright.select();
          const again = this.svg.querySelectorAll(".anchor[tabindex]")[i];
          if (again) again.focus();
        });
      }
      this.svg.append(group);
    });
  }

  hover(event) {
    const frame = this.svg.getBoundingClientRect();
    const x = event.clientX - frame.left;
    const y = event.clientY - frame.top;
    let best = null;
    let least = 34 ** 2;
    this.spots.forEach((spot, i) => {
      const inStrip = spot.strip && y >= spot.strip[0] && y <= spot.strip[1];
      const distance = inStrip ? 0 : (spot.x - x) ** 2 + (spot.y - y) ** 2;
      if (distance < least && (inStrip || !spot.strip)) [best, least] = [i, distance];
    });
    this.show(best);
  }

  key(event) {
    const moves = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };
    if (event.key === "Escape") return this.show(null);
    if (event.target !== this.svg || !moves[event.key] || !this.spots.length) return undefined;
    event.preventDefault();
    return this.show(this.at === null ? 0 : this.next(...moves[event.key]));
  }

  next(along, between) {
    const here = this.spots[this.at];
    const names = [...new Set(this.spots.map((spot) => spot.series))];
    const turn = (names.indexOf(here.series) + between + names.length) % names.length;
    const mine = this.spots.filter((spot) => spot.series === names[turn]).sort((a, b) => a.x - b.x);
    if (between) {
      const near = mine.reduce((a, b) => (Math.abs(b.x - here.x) < Math.abs(a.x - here.x) ? b : a));
      return this.spots.indexOf(near);
    }
    const place = Math.max(0, Math.min(mine.length - 1, mine.indexOf(here) + along));
    return this.spots.indexOf(mine[place]);
  }

  show(index) {
    this.at = index;
    const spot = index === null ? null : this.spots[index];
    for (const group of this.body.children) {
      group.classList.toggle("dim", Boolean(spot) && group.dataset.key !== undefined && group.dataset.key !== spot.series.key);
    }
    this.mark.setAttribute("visibility", spot ? "visible" : "hidden");
    this.tip.hidden = !spot;
    if (!spot) return;
    this.mark.setAttribute("cx", spot.x);
    this.mark.setAttribute("cy", spot.y);
    const head = el("b", { class: spot.series.look }, spot.series.name);
    this.tip.replaceChildren(head, ...spot.point.tip.map(([term, text]) => el("span", {}, `${term}: ${text}`)));
    const room = this.host.clientWidth - this.tip.offsetWidth - 4;
    const left = spot.x + 16 > room ? spot.x - this.tip.offsetWidth - 16 : spot.x + 16;
    this.tip.style.left = `${Math.max(0, Math.min(room, left))}px`;
    this.tip.style.top = `${Math.max(0, spot.y - this.tip.offsetHeight / 2)}px`;
  }
}
