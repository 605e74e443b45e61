// Shows the values of the epoch under the pointer where a plot's last values are otherwise.
for (const figure of document.querySelectorAll("figure")) {
  const data = figure.querySelector("script");
  if (!data) continue;
  const { epochs, places, values } = JSON.parse(data.textContent);
  const area = figure.querySelector(".area");
  const mark = figure.querySelector(".at");
  const when = figure.querySelector(".when");
  const texts = figure.querySelectorAll("figcaption b");
  const show = (index) => {
    when.textContent = `epoch ${epochs[index]}`;
    texts.forEach((text, series) => { text.textContent = values[series][index]; });
    mark.style.left = `${places[index]}%`;
  };
  area.addEventListener("pointermove", (event) => {
    const box = area.getBoundingClientRect();
    const place = ((event.clientX - box.left) / box.width) * 100;
    let nearest = 0;
    places.forEach((other, index) => {
      if (Math.abs(other - place) < Math.abs(places[nearest] - place)) nearest = index;
    });
    show(nearest);
    mark.hidden = false;
  });
  area.addEventListener("pointerleave", () => {
    show(epochs.length - 1);
    mark.hidden = true;
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
