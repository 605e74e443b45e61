// Sorts a table by the column whose heading is pressed: names from A, numbers from the largest; in reverse if pressed again.
for (const table of document.querySelectorAll(".sorts table")) {
  const headings = [...table.tHead.rows[0].cells];
  const key = (row, column) => row.cells[column].dataset.value ?? row.cells[column].textContent;
  const compare = (a, b) => (a - b) || a.localeCompare(b, undefined, { numeric: true });
  const sort = (column, sign) => {
    const rows = [...table.tBodies[0].rows].map((row) => [key(row, column), row]);
    // Rows without a value stay at the end.
    rows.sort(([a], [b]) => (a === "") - (b === "") || sign * compare(a, b));
    table.tBodies[0].append(...rows.map(([, row]) => row));
  };
  headings.forEach((heading, column) => {
    const button = document.createElement("button");
    button.append(...heading.childNodes);
    heading.append(button);
    button.addEventListener("click", () => {
      const isText = Number.isNaN(Number(key(table.tBodies[0].rows[0], column)));
      const [first, second] = isText ? ["ascending", "descending"] : ["descending", "ascending"];
      const order = heading.getAttribute("aria-sort") === first ? second : first;
      headings.forEach((other) => other.removeAttribute("aria-sort"));
      heading.setAttribute("aria-sort", order);
      sort(column, order === "ascending" ? 1 : -1);
    });
  });
}

// Shows the classes whose name contains the text in the field.
const search = document.querySelector("#search");
if (search) {
  search.hidden = false;
  search.addEventListener("input", () => {
    const text = search.value.trim().toLowerCase();
    for (const row of document.querySelectorAll("#classes tbody tr")) {
      row.hidden = !row.cells[0].textContent.toLowerCase().includes(text);
    }
  });
}
