// Computes modelled seconds anew for the bandwidth that the slider chooses: the cells of the table, and the curves by modelled time.
const slider = document.querySelector("#bandwidth");
if (slider) {
  const { bandwidths, figures } = JSON.parse(document.querySelector("#costs script").textContent);
  const shown = (seconds) => {
    if (seconds < 0.1) return `${(seconds * 1e3).toFixed(1)} ms`;
    if (seconds < 9.995) return `${seconds.toFixed(2)} s`;
    if (seconds < 99.95) return `${seconds.toFixed(1)} s`;
    const whole = Math.round(seconds);
    const two = (number) => String(number).padStart(2, "0");
    if (whole < 3600) return `${Math.floor(whole / 60)} min ${two(whole % 60)} s`;
    const minutes = Math.floor((whole + 30) / 60);
    return `${Math.floor(minutes / 60)} h ${two(minutes % 60)} min`;
  };
  const draw = ({ id, series, marks }, bits) => {
    const figure = document.getElementById(id);
    if (!figure) return;
    const curves = series.map((points) => points.map(([seconds, bytes, text]) => [seconds + bytes * 8 / bits, text]));
    const all = curves.flat().map(([seconds]) => seconds).filter((seconds) => seconds > 0);
    const [low, high] = [Math.floor(Math.log10(Math.min(...all))), Math.ceil(Math.log10(Math.max(...all)))];
    const across = (seconds) => 100 * (Math.log10(seconds) - low) / Math.max(high - low, 1);
    const area = figure.querySelector(".area");
    for (const [row, path] of [...figure.querySelectorAll("svg .line")].entries()) {
      const downs = path.dataset.downs ??= path.getAttribute("d").slice(1).split("L").map((place) => place.split(" ")[1]).join(" ");
      const places = downs.split(" ").map((down, point) => `${(10 * across(curves[row][point][0])).toFixed(1)} ${down}`);
      path.setAttribute("d", `M${places.join("L")}`);
      const dots = path.nextElementSibling;
      if (dots?.classList.contains("dots")) {
        dots.setAttribute("d", marks[row].map((point) => `M${places[point]}h0`).join(""));
      }
    }
    area.querySelectorAll(".x").forEach((label) => label.remove());
    for (let power = low; power <= high; power += 1) {
      const label = document.createElement("span");
      label.className = "x";
      label.style.left = `${across(10 ** power)}%`;
      label.textContent = power < 0 ? `${10 ** (power + 3)} ms` : `${10 ** power} s`;
      area.append(label);
    }
    const sorted = [...new Set(all)].sort((a, b) => a - b);
    const step = Math.ceil(sorted.length / 400);
    const stops = sorted.filter((_, at) => (sorted.length - 1 - at) % step === 0);
    const values = curves.map((points) => stops.map((stop) => points.findLast(([seconds]) => seconds <= stop)?.[1] ?? "–"));
    const names = stops.map((stop) => `after ${shown(stop)}`);
    figure.querySelector("script").textContent = JSON.stringify({ names, places: stops.map(across), values, start: stops.length - 1 });
    figure.dispatchEvent(new Event("redrawn"));
  };
  slider.addEventListener("input", () => {
    const [bits, name] = bandwidths[slider.value];
    document.querySelectorAll(".bandwidth").forEach((text) => { text.textContent = name; });
    for (const cell of document.querySelectorAll("[data-costs]")) {
      const [seconds, bytes] = JSON.parse(cell.dataset.costs);
      cell.dataset.value = seconds + bytes * 8 / bits;
      cell.textContent = shown(Number(cell.dataset.value));
    }
    figures.forEach((figure) => draw(figure, bits));
  });
}
