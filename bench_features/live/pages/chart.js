// Charts over time, drawn at the width there is: texts keep their size on a telephone. A line is drawn only where
// somebody looked; every scale of a magnitude begins at 0 unless it is logarithmic, which its title then says.
const SVG = "http://www.w3.org/2000/svg";
const HEIGHT = 220, LEFT = 62, RIGHT = 10, TOP = 44, BOTTOM = 26, LETTER = 7.4;

export function make(name, attributes, text) {
  const made = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  if (text !== undefined) made.textContent = text;
  return made;
}

// Steps of 1, 2 or 5 times a power of ten, or of a clock.
function stepFor(span, count, clock) {
  const least = span / Math.max(1, count);
  if (clock) {
    const found = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400].find((each) => each >= least);
    if (found) return found;
  }
  const power = 10 ** Math.floor(Math.log10(least));
  return [1, 2, 5, 10].map((each) => each * power).find((each) => each >= least * 0.999) ?? 10 * power;
}

export function clockText(seconds) {
  const whole = Math.round(Math.max(0, seconds));
  const [hours, minutes, rest] = [Math.floor(whole / 3600), Math.floor(whole / 60) % 60, whole % 60];
  const two = (number) => String(number).padStart(2, "0");
  return hours ? `${hours}:${two(minutes)}:${two(rest)}` : `${minutes}:${two(rest)}`;
}

class Scale {
  constructor(low, high, from, to, log) {
    Object.assign(this, { low, high, from, to, log });
  }
  at(value) {
    const share = this.log
      ? Math.log(value / this.low) / Math.log(this.high / this.low)
      : (value - this.low) / (this.high - this.low || 1);
    return this.from + (this.to - this.from) * Math.min(1, Math.max(0, share));
  }
  ticks(count) {
    const found = [];
    if (this.log) {
      const decades = Math.log10(this.high / this.low);
      const factors = decades > 4 ? [1] : decades > 2 ? [1, 3] : [1, 2, 5];
      for (let power = Math.floor(Math.log10(this.low)); 10 ** power <= this.high; power += decades > 8 ? 2 : 1)
        for (const factor of factors) found.push(factor * 10 ** power);
    } else {
      const step = stepFor(this.high - this.low, count, this.clock);
      for (let value = Math.ceil(this.low / step) * step; value <= this.high * 1.0001; value += step) found.push(value);
    }
    return found.filter((value) => value >= this.low * 0.9999 && value <= this.high * 1.0001);
  }
}

// `lines`: each with name, colour, dash and values [[begin, end, value], ...]; `bands`: [begin, end, text, colour].
export function draw(figure, { title, lines, bands, format, marks = [], mayLog = false, label }) {
  const width = Math.max(240, Math.floor(figure.clientWidth));
  const every = lines.flatMap((line) => line.values);
  const svg = make("svg", { width, height: HEIGHT, viewBox: `0 0 ${width} ${HEIGHT}`, role: "img", "aria-label": label });
  const text = (x, y, words, extra = {}) =>
    svg.append(make("text", { x, y, fill: "var(--muted)", "font-size": 12, "font-family": "inherit", ...extra }, words));
  const values = every.map((each) => each[2]).filter((value) => value > 0);
  const high = Math.max(...values, 0), low = Math.min(...values);
  const log = mayLog && values.length > 0 && high / low > 20;
  text(2, 13, log ? `${title}, log` : title, { fill: "var(--ink)", "font-weight": "bold" });
  if (!every.length) {
    text(2, HEIGHT / 2, "No data yet");
  } else {
    const x = new Scale(every[0][0], every[0][1], LEFT, width - RIGHT, false);
    for (const [begin, end] of [...every, ...bands]) [x.low, x.high] = [Math.min(x.low, begin), Math.max(x.high, end)];
    x.clock = true;
    const y = new Scale(log ? low * 0.9 : 0, high * 1.05 || 1, HEIGHT - BOTTOM, TOP, log);
    let lowest = Infinity;
    for (const tick of y.ticks(5)) {
      const at = y.at(tick);
      svg.append(make("path", { d: `M${LEFT} ${at.toFixed(1)}H${width - RIGHT}`, stroke: "var(--grid)" }));
      if (lowest - at < 15) continue;
      lowest = at;
      text(LEFT - 6, at + 4, format(tick).replace(/\.0+(?=\D|$)/, ""), { "text-anchor": "end" });
    }
    let right = -Infinity;
    for (const tick of x.ticks(Math.floor((width - LEFT) / 80))) {
      const words = clockText(tick), at = Math.min(x.at(tick), width - words.length * LETTER / 2);
      if (at - words.length * LETTER / 2 < right + 8) continue;
      right = at + words.length * LETTER / 2;
      svg.append(make("path", { d: `M${x.at(tick).toFixed(1)} ${HEIGHT - BOTTOM}v4`, stroke: "var(--muted)" }));
      text(at, HEIGHT - BOTTOM + 17, words, { "text-anchor": "middle" });
    }
    for (const [begin, end, words, colour] of bands) {
      const [from, to] = [x.at(begin), x.at(end)];
      const band = make("path", { d: `M${from.toFixed(1)} ${TOP - 4}H${to.toFixed(1)}`, stroke: colour, "stroke-width": 3 });
      band.append(make("title", {}, words));
      svg.append(band);
      const room = Math.floor((to - from) / LETTER);
      const shown = [...words].length <= room ? words : room >= 5 ? `${[...words].slice(0, room - 1).join("")}…` : "";
      if (shown) text(from, TOP - 9, shown);
    }
    for (const { values: own, colour, dash } of lines) {
      let d = "", last = null;
      for (const [begin, end, value] of own) {
        if (log && !(value > 0)) continue;
        const at = y.at(value).toFixed(1);
        d += last === begin ? `V${at}` : `M${x.at(begin).toFixed(1)} ${at}`;
        d += `H${x.at(end).toFixed(1)}`;
        last = end;
      }
      svg.append(make("path", { d, fill: "none", stroke: colour, "stroke-width": 2, "stroke-dasharray": dash ?? "none" }));
    }
    for (const [at, words] of marks) {
      const cross = make("text", { x: x.at(at), y: TOP + 12, fill: "var(--ink)", "font-size": 14, "text-anchor": "middle" }, "×");
      cross.append(make("title", {}, words));
      svg.append(cross);
    }
  }
  figure.querySelector("svg")?.remove();
  figure.prepend(svg);
}
