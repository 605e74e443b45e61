// Moves a cursor over charts, with the pointer, a finger or keys. Legends have the values at the cursor, and else those at the best epoch.
for (const figure of document.querySelectorAll("figure")) {
  const read = () => JSON.parse(figure.querySelector("script").textContent);
  let { names, places, values, start } = read();
  const area = figure.querySelector(".area");
  const cursor = figure.querySelector(".at");
  const legend = figure.querySelector("figcaption ul");
  const texts = [figure.querySelector(".when"), ...legend.querySelectorAll("b")];
  const atRest = texts.map((text) => text.textContent);
  const move = (key) => {
    const page = Math.ceil(names.length / 10);
    const moves = {
      ArrowLeft: -1, ArrowRight: 1, ArrowDown: -1, ArrowUp: 1, PageDown: -page, PageUp: page, Home: -Infinity, End: Infinity,
    };
    return moves[key];
  };
  let at = start;
  const tell = (shown) => {
    texts.forEach((text, index) => { text.textContent = shown[index]; });
    area.setAttribute("aria-valuenow", at + 1);
    const values = [...legend.children].map((entry) => entry.textContent.trim());
    area.setAttribute("aria-valuetext", `${shown[0]}: ${values.join(", ")}`);
  };
  const rest = () => {
    at = start;
    cursor.hidden = true;
    tell(atRest);
  };
  const show = (index) => {
    at = Math.max(0, Math.min(index, names.length - 1));
    cursor.hidden = false;
    cursor.style.left = `${places[at]}%`;
    tell([names[at], ...values.map((series) => series[at])]);
  };
  const point = (event) => {
    const box = area.getBoundingClientRect();
    const place = ((event.clientX - box.left) / box.width) * 100;
    const distances = places.map((other) => Math.abs(other - place));
    show(distances.indexOf(Math.min(...distances)));
  };
  const label = figure.querySelector("h3").textContent;
  const slider = { tabindex: 0, role: "slider", "aria-label": label, "aria-valuemin": 1, "aria-valuemax": names.length };
  for (const [name, value] of Object.entries(slider)) area.setAttribute(name, value);
  rest();
  area.addEventListener("pointermove", point);
  area.addEventListener("pointerdown", (event) => {
    area.focus({ preventScroll: true });
    point(event);
  });
  area.addEventListener("pointerleave", () => {
    if (document.activeElement !== area) rest();
  });
  area.addEventListener("focus", () => show(at));
  area.addEventListener("blur", rest);
  area.addEventListener("keydown", (event) => {
    const by = move(event.key);
    if (by === undefined) return;
    event.preventDefault();
    show(at + by);
  });
  figure.addEventListener("redrawn", () => {
    ({ names, places, values, start } = read());
    area.setAttribute("aria-valuemax", names.length);
    rest();
  });
}
