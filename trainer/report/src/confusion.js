// Says what a cell of the confusion matrix counts: the one under the pointer or finger, or the one that arrow keys reach.
const matrix = document.querySelector("#confusion");
if (matrix) {
  const rows = [...matrix.tBodies[0].rows].map((row) => [...row.querySelectorAll("td")]);
  const reading = document.querySelector("#cell");
  const moves = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] };
  let [row, column] = [0, 0];
  const show = (toRow, toColumn) => {
    rows[row][column].classList.remove("chosen");
    row = Math.max(0, Math.min(toRow, rows.length - 1));
    column = Math.max(0, Math.min(toColumn, rows.length - 1));
    rows[row][column].classList.add("chosen");
    reading.textContent = rows[row][column].title;
  };
  rows.forEach((cells, index) => cells.forEach((cell, other) => {
    for (const event of ["pointerover", "pointerdown"]) cell.addEventListener(event, () => show(index, other));
  }));
  matrix.tabIndex = 0;
  matrix.addEventListener("focus", () => show(row, column));
  matrix.addEventListener("keydown", (event) => {
    if (!(event.key in moves)) return;
    event.preventDefault();
    show(row + moves[event.key][0], column + moves[event.key][1]);
  });
}

// Shows with which classes the chosen class is confused.
const chooser = document.querySelector("#chooser");
if (chooser) {
  const classes = JSON.parse(chooser.querySelector("script").textContent);
  const select = chooser.querySelector("select");
  const names = new Map([...select.options].map((option) => [Number(option.value), option.textContent]));
  const choose = () => {
    const { told, others } = classes[select.value];
    chooser.querySelector("#told").textContent = told;
    const rows = others.map(([other, to, from]) => {
      const row = document.createElement("tr");
      row.append(document.createElement("th"), document.createElement("td"), document.createElement("td"));
      [names.get(other), to, from].forEach((text, index) => { row.cells[index].textContent = text; });
      return row;
    });
    chooser.querySelector("tbody").replaceChildren(...rows);
    chooser.querySelector("table").hidden = rows.length === 0;
  };
  select.addEventListener("change", choose);
  chooser.hidden = false;
  choose();
}
