// What the reader switches: policies, and the columns and the order of a table that also comes as CSV.
"use strict";

// A button a policy; the last one that goes out brings all back.
function policyChips(arms, hidden, redraw) {
  const host = byId("chips");
  const update = () =>
    [...host.children].forEach((chip, i) => chip.setAttribute("aria-pressed", String(!hidden.has(arms[i].key))));
  const buttons = arms.map((arm) => {
    const button = el("button", { type: "button", class: `chip ${arm.look}`, title: arm.verdict }, swatch(arm), arm.name);
    button.addEventListener("click", () => {
      if (!hidden.delete(arm.key)) hidden.add(arm.key);
      if (hidden.size === arms.length) hidden.clear();
      update();
      redraw();
    });
    return button;
  });
  host.replaceChildren(...buttons);
  update();
}

// The mean with half its interval in small words behind it.
function cell(triple, digits, change) {
  if (!triple || triple[0] === null) return el("td", {}, NONE);
  const wide = change && triple[1] !== null && triple[2] - triple[1] >= 20;
  if (wide) digits = 0;
  const sign = change ? (triple[0] >= 0 ? "+" : "−") : "";
  const mean = sign + number(change ? Math.abs(triple[0]) : triple[0], digits);
  const half = triple[1] === null ? null : el("small", {}, `± ${number((triple[2] - triple[1]) / 2, digits)}`);
  return el("td", {}, mean, half ? " " : null, half);
}

const named = (arm) => el("th", { scope: "row", class: `left named ${arm.look}` }, swatch(arm), el("span", {}, ` ${arm.name}`));

class Numbers {
  // rows: () => what to show, with key, load and a triple a column; columns: [{id, name, unit, digits, first, change}];
  // lead: {name, unit, words: load => text, title}; against: the baseline; what: start of the CSV's name.
  constructor({ rows, columns, armOf, lead, against }) {
    Object.assign(this, { rows, columns, armOf, lead, against, all: false, by: "load", down: false });
    this.more = byId("columns");
    this.more.hidden = columns.every((column) => column.first);
    this.more.addEventListener("click", () => {
      this.all = !this.all;
      this.draw();
    });
    byId("csv").addEventListener("click", () => download("dspark-sim.csv", this.csv()));
  }

  headings() {
    const column = (id, name, unit, left) => ({ id, name, unit, left });
    const shown = this.columns.filter((one) => this.all || one.first);
    return [column("name", "policy", "", true), column("load", this.lead.name, this.lead.unit), ...shown, column("lossless", "lossless", "", true)];
  }

  value(row) {
    if (this.by === "name" || this.by === "lossless") return this.armOf[row.key][this.by];
    return this.by === "load" ? row.load : row[this.by][0];
  }

  sorted() {
    const turn = this.down ? -1 : 1;
    return [...this.rows()].sort((a, b) => {
      const [x, y] = [this.value(a), this.value(b)];
      if (x === y) return 0;
      if (x === null) return 1;
      if (y === null) return -1;
      return (x < y ? -1 : 1) * turn;
    });
  }

  unit(column) {
    return column.change ? `% vs ${this.against}` : column.unit;
  }

  draw() {
    const heads = this.headings().map((column) => {
      const button = el("button", { type: "button", onclick: () => this.sort(column.id) }, column.name);
      const order = column.id === this.by ? (this.down ? "descending" : "ascending") : null;
      const unit = el("small", {}, this.unit(column) || "\u00a0");
      return el("th", { scope: "col", class: column.left ? "left" : null, "aria-sort": order }, button, unit);
    });
    const shown = this.columns.filter((one) => this.all || one.first);
    const body = this.sorted().map((row) => {
      const arm = this.armOf[row.key];
      const cells = shown.map(({ id, digits, change }) => cell(row[id], digits, change));
      return el("tr", {}, named(arm), el("td", {}, this.lead.words(row.load)), ...cells, el("td", { class: "left" }, arm.lossless));
    });
    byId("table").replaceChildren(el("table", {}, el("thead", {}, el("tr", {}, ...heads)), el("tbody", {}, ...body)));
    this.more.textContent = this.all ? "Fewer columns" : `All ${this.columns.length} columns`;
    this.more.setAttribute("aria-expanded", String(this.all));
  }

  sort(id) {
    this.down = this.by === id ? !this.down : !["load", "name", "lossless"].includes(id);
    this.by = id;
    this.draw();
    byId("table").querySelectorAll("thead button")[this.headings().findIndex((column) => column.id === id)].focus();
  }

  // Every column, shown or not, with the ends of its interval.
  csv() {
    const quote = (value) => (/[",\n]/.test(value) ? `"${value.replaceAll('"', '""')}"` : value);
    const label = (c) => (c.change ? `${c.name} against ${this.against} [%]` : c.unit ? `${c.name} [${c.unit}]` : c.name);
    const head = [this.lead.title, "drafter", "policy", "seeds"];
    for (const column of this.columns) head.push(label(column), `${label(column)} low95`, `${label(column)} high95`);
    const lines = [[...head, "lossless"]];
    for (const row of this.sorted()) {
      const arm = this.armOf[row.key];
      const values = this.columns.flatMap(({ id }) => row[id].map((value) => (value === null ? "" : String(value))));
      lines.push([this.lead.value(row.load), arm.drafter, arm.policy, String(row.seeds), ...values, arm.lossless]);
    }
    return `${lines.map((line) => line.map(quote).join(",")).join("\n")}\n`;
  }
}
