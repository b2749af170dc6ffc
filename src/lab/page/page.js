'use strict';
// Draws what the lab found: tiles, charts and tables, from the data in the page.
const lab = JSON.parse(document.getElementById('data').textContent);

function element(name, attributes = {}, ...children) {
  const node = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
  node.append(...children);
  return node;
}

function formatted(cell, column) {
  if (typeof cell !== 'number') return cell ?? '';
  const digits = cell.toLocaleString('en-US', {
    minimumFractionDigits: column.decimals,
    maximumFractionDigits: column.decimals,
  });
  return digits + column.suffix;
}

/** Three significant digits, for axes and tooltips. */
function short(value) {
  return value.toLocaleString('en-US', {maximumSignificantDigits: Math.abs(value) >= 1000 ? 6 : 3});
}

function tableOf(table) {
  const origins = element('tr', {class: 'origins'});
  for (let at = 0; at < table.columns.length;) {
    const origin = table.columns[at].origin;
    let span = 0;
    while (at + span < table.columns.length && table.columns[at + span].origin === origin) ++span;
    origins.append(element('th', {class: origin, colspan: span, scope: 'colgroup'}, origin === 'label' ? '' : origin));
    at += span;
  }
  const titles = element('tr');
  for (const column of table.columns) titles.append(element('th', {class: column.origin, scope: 'col'}, column.title));
  const body = element('tbody');
  for (const row of table.rows) {
    const line = element('tr');
    row.forEach((cell, at) => {
      const column = table.columns[at];
      line.append(element('td', {class: column.origin}, formatted(cell, column)));
    });
    body.append(line);
  }
  return element('div', {class: 'card table'}, element('h3', {}, table.title),
                 element('div', {class: 'scroll'}, element('table', {}, element('thead', {}, origins, titles), body)));
}

const drawn = [];

function colour(name) {
  return getComputedStyle(document.documentElement).getPropertyValue('--' + name).trim();
}

/** Series of one origin share its colour, in steps; parts of a whole, and lines, have their own. */
function colourOf(chart, index) {
  const series = chart.series[index];
  const same = chart.series.filter((one) => one.origin === series.origin);
  const own = chart.shape !== 'bars' || same.length === chart.series.length;
  if (own) return colour('c' + index % 8);
  const rank = same.indexOf(series);
  const share = Math.max(25, 100 - rank * 70 / Math.max(1, same.length - 1) * (same.length > 1 ? 1 : 0));
  return `color-mix(in srgb, ${colour(series.origin)} ${share}%, ${colour('card')})`;
}

/** A canvas wants a colour that is worked out. */
function resolved(css) {
  const probe = element('span', {style: 'color:' + css});
  document.body.append(probe);
  const result = getComputedStyle(probe).color;
  probe.remove();
  return result;
}

function settingsOf(chart) {
  const ink = colour('ink');
  const soft = colour('soft');
  const line = colour('line');
  const lines = chart.shape === 'lines';
  const axis = (title, more) => ({
    stacked: chart.shape === 'stacked',
    title: {display: title !== '', text: title, color: soft},
    ticks: {color: soft, ...more.ticks},
    grid: {color: line, display: more.grid},
    border: {color: line},
  });
  return {
    type: lines ? 'line' : 'bar',
    data: {
      labels: chart.labels,
      datasets: chart.series.map((series, index) => {
        const fill = resolved(colourOf(chart, index));
        return {
          label: series.name,
          data: series.values.map((value) => typeof value === 'number' ? value : null),
          backgroundColor: fill,
          borderColor: fill,
          borderWidth: lines ? 2.5 : 0,
          borderRadius: chart.shape === 'bars' ? 3 : 0,
          pointRadius: lines ? 4 : 0,
          maxBarThickness: 54,
          skipNull: true,
          borderDash: lines && series.origin === 'published' ? [6, 4] : [],
        };
      }),
    },
    options: {
      animation: false,
      responsive: true,
      maintainAspectRatio: false,
      interaction: {mode: 'index', intersect: false},
      scales: {
        x: axis(chart.x, {grid: false, ticks: {maxRotation: 35, autoSkip: false}}),
        y: {
          ...axis(chart.y, {
            grid: true,
            ticks: {
              callback(value) {
                // On a logarithmic axis, powers of ten alone.
                if (chart.logarithmic && Math.abs(Math.log10(value) % 1) > 1e-9) return null;
                return short(value);
              },
            },
          }),
          type: chart.logarithmic ? 'logarithmic' : 'linear',
          beginAtZero: !chart.logarithmic,
        },
      },
      plugins: {
        legend: {position: 'bottom', labels: {color: ink, boxWidth: 12, boxHeight: 12, font: {size: 12}}},
        tooltip: {callbacks: {label: (item) => `${item.dataset.label}: ${short(item.parsed.y)}`}},
      },
    },
  };
}

function draw() {
  for (const one of drawn) {
    one.object?.destroy();
    one.object = new Chart(one.canvas, settingsOf(one.chart));
  }
}

function figureOf(chart) {
  const canvas = element('canvas', {role: 'img', 'aria-label': chart.title});
  drawn.push({chart, canvas, object: null});
  return element('figure', {class: 'card'}, element('h3', {}, chart.title), element('div', {class: 'plot'}, canvas));
}

function tileOf(section) {
  const {what, unit, decimals, modelled, published, measured} = section.headline;
  const number = (value) => value.toLocaleString('en-US', {
    minimumFractionDigits: decimals, maximumFractionDigits: decimals});
  const gain = (pair) => pair[1] > 0 ? Number((pair[0] / pair[1]).toPrecision(3)).toLocaleString('en-US') + 'x' : 'all of it';
  const tile = element('div', {class: 'card tile'}, element('h3', {}, section.key), element('div', {class: 'what'}, what));
  if (modelled) {
    tile.append(element('div', {class: 'gain'}, gain(modelled)),
                element('div', {class: 'from'}, `${number(modelled[0])} → ${number(modelled[1])} ${unit}`));
  }
  if (published) {
    const text = `published ${number(published[0])} → ${number(published[1])}`;
    tile.append(element('div', {class: 'told'}, `${text}, ${gain(published)}`));
  }
  if (measured) tile.append(element('div', {class: 'here'}, `measured here ${gain(measured)}`));
  return tile;
}

for (const section of lab.sections) {
  document.getElementById('contents').append(element('a', {href: '#' + section.key}, section.key));
  if (section.headline) document.getElementById('tiles').append(tileOf(section));
  const charts = element('div', {class: 'charts'}, ...section.charts.map(figureOf));
  const notes = element('ul', {}, ...section.notes.map((note) => element('li', {}, note)));
  document.getElementById('sections').append(element(
      'section', {id: section.key}, element('h2', {}, section.title), element('p', {}, section.summary), charts,
      ...section.tables.map(tableOf), notes));
}
draw();
matchMedia('(prefers-color-scheme: dark)').addEventListener('change', draw);
