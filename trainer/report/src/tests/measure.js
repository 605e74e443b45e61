// For the test that draws a report: what is where in each of the frames, which have the page at different widths.
window.addEventListener("load", () => {
  const measured = [...document.querySelectorAll("iframe")].map((frame) => {
    const page = frame.contentDocument;
    const width = frame.contentWindow.innerWidth;
    const box = (element) => element.getBoundingClientRect();
    // Tables fit too: nothing is cut off or has to be scrolled sideways. Text must fit its own box.
    const outside = [...page.querySelectorAll("main *")]
      .filter((element) => !element.closest("script") && box(element).width > 0)
      .filter((element) => box(element).left < 0 || box(element).right > width)
      .concat([...page.querySelectorAll(".tiles b, .tiles span, th, td, dd, .rows, #stages")].filter((text) => text.scrollWidth > text.clientWidth))
      .map((element) => `${element.tagName} ${element.className} ${element.textContent.slice(0, 40)}`);
    const plots = {};
    for (const figure of page.querySelectorAll("figure")) {
      const svg = figure.querySelector("svg");
      const shapes = [...svg.querySelectorAll(".line, .bar, .dots")].filter((path) => path.getAttribute("d"));
      plots[figure.id] = { width: box(svg).width, height: box(svg).height, shapes: shapes.length };
    }
    const tops = [...page.querySelectorAll("figure")].slice(2, 5).map((figure) => box(figure).top);
    const { Event, KeyboardEvent, PointerEvent } = frame.contentWindow;
    const press = (element, key) => element.dispatchEvent(new KeyboardEvent("keydown", { key, cancelable: true }));
    const touch = (element, name, more) => element.dispatchEvent(new PointerEvent(name, { pointerType: "touch", ...more }));

    // A cursor over a chart: the pointer at its left end, then keys, then a finger.
    const area = page.querySelector("#plot-accuracy .area");
    const when = page.querySelector("#plot-accuracy .when");
    const left = { clientX: box(area).left, clientY: box(area).top + 5 };
    area.dispatchEvent(new PointerEvent("pointermove", left));
    const pointed = when.textContent;
    area.dispatchEvent(new PointerEvent("pointerleave"));
    const after = when.textContent;
    const keys = ["ArrowLeft", "ArrowRight", "Home", "ArrowLeft", "ArrowRight", "End"].map((key) => {
      press(area, key);
      return when.textContent;
    });
    const value = area.getAttribute("aria-valuetext");
    touch(area, "pointerdown", left);
    touch(area, "pointerleave", left);
    const touched = when.textContent;
    area.blur();
    area.dispatchEvent(new Event("blur"));
    const areas = [...page.querySelectorAll(".area")];
    const named = areas.every((area) => area.tabIndex === 0 && area.getAttribute("role") === "slider" && area.getAttribute("aria-label"));

    // Tables sort by the column whose heading is pressed.
    const column = (index) => [...page.querySelectorAll("#classes tbody tr")].map((row) => row.cells[index].textContent);
    const sorted = (index) => {
      page.querySelectorAll("#classes thead button")[index].click();
      return column(index);
    };
    const sorts = { nodes: column(1), f1: sorted(2), reversed: sorted(2), names: sorted(0) };

    const search = page.querySelector("#search");
    let found = null;
    if (search) {
      search.value = "CLASS-17-";
      search.dispatchEvent(new Event("input"));
      found = [...page.querySelectorAll("#classes tbody tr")].filter((row) => box(row).height > 0).length;
    }

    // The cells of the confusion matrix, by keys and by touch; then a class that the reader chooses.
    const cells = ["ArrowRight", "ArrowDown", "ArrowDown"].map((key) => {
      press(page.querySelector("#confusion"), key);
      return page.querySelector("#cell").textContent;
    });
    touch(page.querySelector("#confusion td"), "pointerdown");
    cells.push(page.querySelector("#cell").textContent);
    const select = page.querySelector("#class");
    const chosen = [0, select.options.length - 1].map((index) => {
      select.selectedIndex = index;
      select.dispatchEvent(new Event("change"));
      return [page.querySelector("#told").textContent, page.querySelectorAll("#chooser tbody tr").length];
    });
    return {
      found, width, scrollWidth: page.documentElement.scrollWidth, outside, plots,
      columns: tops.filter((top) => top === tops[0]).length,
      pointed, after, keys, value, touched, rested: when.textContent, named: Boolean(named), sorts, cells, chosen,
    };
  });
  document.querySelector("#measured").textContent = JSON.stringify(measured);
});
