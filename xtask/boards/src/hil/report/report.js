"use strict";
const text = document.getElementById("text");
const boxes = [...document.querySelectorAll("nav input[type=checkbox]")];
function filter() {
  const wanted = new Set(boxes.filter((box) => box.checked).map((box) => box.value));
  const part = text.value.toLowerCase();
  for (const row of document.querySelectorAll("tbody tr")) {
    row.hidden = !wanted.has(row.className) || !row.textContent.toLowerCase().includes(part);
  }
}
for (const control of [text, ...boxes]) control.addEventListener("input", filter);
for (const table of document.querySelectorAll("table")) {
  const heads = [...table.tHead.rows[0].cells];
  heads.forEach((head, column) => head.querySelector("button")?.addEventListener("click", () => {
    const down = head.ariaSort === "ascending";
    for (const other of heads) other.removeAttribute("aria-sort");
    head.ariaSort = down ? "descending" : "ascending";
    const rows = [...table.tBodies[0].rows];
    const cell = (row) => row.cells[column].textContent;
    rows.sort((a, b) => (down ? -1 : 1) * cell(a).localeCompare(cell(b), "en", { numeric: true }));
    table.tBodies[0].append(...rows);
  }));
}
filter();
