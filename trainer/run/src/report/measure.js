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
      .concat([...page.querySelectorAll(".tiles b, .tiles span, th, td, dd, .rows, .scroll")].filter((text) => text.scrollWidth > text.clientWidth))
      .map((element) => `${element.tagName} ${element.className} ${element.textContent.slice(0, 40)}`);
    const plots = {};
    for (const figure of page.querySelectorAll("figure")) {
      const svg = figure.querySelector("svg");
      const shapes = [...svg.querySelectorAll(".line, .bar, .dots")].filter((path) => path.getAttribute("d"));
      plots[figure.id] = { width: box(svg).width, height: box(svg).height, shapes: shapes.length };
    }
    const tops = [...page.querySelectorAll("figure")].slice(2).map((figure) => box(figure).top);
    const area = page.querySelector("#plot-accuracy .area");
    const when = page.querySelector("#plot-accuracy .when");
    const { PointerEvent } = frame.contentWindow;
    area.dispatchEvent(new PointerEvent("pointermove", { clientX: box(area).left, clientY: box(area).top + 5 }));
    const pointed = when.textContent;
    area.dispatchEvent(new PointerEvent("pointerleave"));
    const search = page.querySelector("#search");
    let found = null;
    if (search) {
      search.value = "CLASS-17-";
      search.dispatchEvent(new frame.contentWindow.Event("input"));
      found = [...page.querySelectorAll("#classes tbody tr")].filter((row) => box(row).height > 0).length;
    }
    return {
      found, width, scrollWidth: page.documentElement.scrollWidth, outside, plots,
      columns: tops.filter((top) => top === tops[0]).length, pointed, left: when.textContent,
    };
  });
  document.querySelector("#measured").textContent = JSON.stringify(measured);
});
