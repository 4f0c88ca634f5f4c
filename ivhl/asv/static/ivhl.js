/* What asv's pages do with benchmarks from ivhl's records. ivhl/asv/site.py calls these from asv's own
   scripts; for benchmarks of others each does what asv does. */
'use strict';

(function() {
    var failures = {};  /* address: list, or null while it loads */
    var fill = false;  /* whether a release may show the value of an earlier commit */

    function ours(name) {
        var bm = ($.asv.main_json.benchmarks || {})[name];
        return bm && bm.failures ? bm : null;
    }

    function has(values, value) {
        return $.inArray(value, values) !== -1;
    }

    /* As asv has the names of categories, which flot inserts as HTML. */
    function escaped(text) {
        return $('<span/>').text(text).html();
    }

    function chosen(bm, selection, failure) {
        /* Whether the parameters of a benchmark that a failure has are selected */
        return bm.param_names.every(function(name, k) {
            var index = $.inArray("'" + failure[name] + "'", bm.params[k]);
            return selection[k + 1] === undefined || has(selection[k + 1], index);
        });
    }

    function table(bm, list) {
        var box = $('#ivhl-failures').empty();
        if (!bm) {
            return;
        }
        var now = list.filter(function(failure) { return failure.now; });
        box.append($('<h4/>').text(now.length ? 'Cells that fail' : 'No selected cell fails'));
        $.each(now, function(_, failure) {
            box.append($('<p/>').append(
                $('<b/>').text('Python ' + failure.python + ', PyTorch ' + failure.torch),
                $('<span/>').text(' ' + [failure.size, failure.variant, failure.machine].join(', ') +
                                  ', ' + failure.commit + ': ' + failure.why)));
        });
    }

    /* The value of a combination: for ours the last one, since releases were measured at any commit. */
    function at(series, row, index, revision) {
        if (fill && revision === null) {
            for (row = series.length - 1; row > 0; --row) {
                if (series[row][1] !== null && series[row][1][index] !== null) {
                    break;
                }
            }
        }
        return series[row][1][index];
    }

    function has_graph(name, index) {
        var bm = ours(name);
        return bm ? has(bm.graphs, index) : index < $.asv.main_json.theirs;
    }

    /* What the page of a benchmark shows before anything was chosen. */
    function start(params) {
        var bm = ours(params.benchmark);
        fill = bm !== null;
        if (!bm) {
            return params.benchmark;
        }
        if ($(window).width() < 768) {  /* first the graph, then what one can choose */
            $('#graph-display').append($('#graphdisplay-navigation'));
        }
        if (!params['x-axis-scale']) {
            params['x-axis-scale'] = ['even'];
        }
        if (!params['x-axis'] && bm.start.axis === 'torch') {
            params['x-axis'] = ['torch'];
        }
        var axis = params['x-axis'] && params['x-axis'][0] === 'torch' ? 'torch' : 'commit';
        $.each(bm.start[axis] || {}, function(key, values) {
            if (params[key] === undefined) {
                params[key] = values.slice();
            }
        });
        return params.benchmark;
    }

    /* The lines, and a cross for each failed case that is selected. */
    function drawn(name, graphs, state, selection, axis, x_of, options) {
        var bm = ours(name);
        if (!bm) {
            table(null);
            return graphs;
        }
        if (!options.yaxis.transform && !$('#zoom-y-axis').hasClass('active')) {
            options.yaxis.max *= options.yaxis.min === 0 ? 1 : 1.1;
            options.yaxis.min = 0;
        }
        graphs = labelled(graphs);
        if (axis === 0) {
            spread(graphs, options);
        } else {
            options.series = {lines: {show: true, lineWidth: 1}, points: {show: true}, shadowSize: 0};
            options.xaxis.categories = bm.params[axis - 1].map(function(value) {
                return escaped($.asv.convert_benchmark_param_value(value));
            });
        }
        if (failures[bm.failures] === undefined) {
            failures[bm.failures] = null;
            $.ajax({url: bm.failures, dataType: 'json'}).done(function(data) {
                failures[bm.failures] = data;
                $(window).trigger('resize');  /* asv draws again */
            });
        }
        var list = (failures[bm.failures] || []).filter(function(failure) {
            return ['machine', 'python', 'device', 'environment'].every(function(key) {
                return has(state[key], failure[key]);
            }) && chosen(bm, axis === 0 ? selection : selection.map(function(values, k) {
                return k === axis ? undefined : values;
            }), failure);
        });
        table(bm, list);
        var marks = {data: [], why: [], color: '#c00', lines: {show: false}, bars: {show: false},
                     points: {show: true, radius: 5, symbol: cross}};
        var floor = /track_failed$/.test(name) ? 1 : options.yaxis.min;
        $.each(list, function(_, failure) {
            var x = axis === 0 ? x_of(failure.revision) : escaped(failure[bm.param_names[axis - 1]]);
            if (axis === 0 ? failure.revision !== null : failure.now) {
                marks.data.push([x, floor]);
                marks.why.push('Python ' + failure.python + ', PyTorch ' + failure.torch + ', ' +
                               failure.size + ', ' + failure.variant + ': ' + failure.why);
            }
        });
        return marks.data.length ? graphs.concat([marks]) : graphs;
    }

    /* Only lines with values, named by what differs between them. */
    function labelled(graphs) {
        graphs = graphs.filter(function(graph) {
            return graph.data.some(function(point) { return point[1] !== null; });
        });
        graphs.sort(function(a, b) { return a.label.localeCompare(b.label, 'en', {numeric: true}); });
        var labels = graphs.map(function(graph) { return graph.label.split('; '); });
        return graphs.map(function(graph, k) {
            var own = labels[k].filter(function(part) {
                return !labels.every(function(other) { return has(other, part); });
            });
            return $.extend({}, graph, {label: (own.length ? own : labels[k]).map(function(part) {
                return part.replace('-', ' ');
            }).join(', ')});
        });
    }

    /* A single commit has no even spacing: asv would draw nothing. */
    function spread(graphs, options) {
        var x = {};
        $.each(graphs, function(_, graph) {
            $.each(graph.data, function(_, point) { x[point[0]] = point[0]; });
        });
        var all = Object.keys(x);
        if (all.length === 1) {
            delete options.xaxis.transform;
            delete options.xaxis.inverseTransform;
            options.xaxis.min = x[all[0]] - 1;
            options.xaxis.max = x[all[0]] + 1;
        }
    }

    function cross(ctx, x, y, radius) {
        ctx.moveTo(x - radius, y - radius);
        ctx.lineTo(x + radius, y + radius);
        ctx.moveTo(x - radius, y + radius);
        ctx.lineTo(x + radius, y - radius);
    }

    function tip(item, value, commit, axis) {
        var text = item.series.why ? item.series.why[item.dataIndex] :
            (fill ? item.series.label + ': ' : '') + value;
        return axis === 0 && commit ? text + ' @ ' + commit : text;
    }

    function top(data) {
        return 1.2 * Math.max.apply(null, [0].concat(data.map(function(point) { return point[1]; }))) || 1;
    }

    /* A cell of the grid: what asv shows, the last value, where, and how many cells fail. */
    function grid(bm, container) {
        if (!bm.grid) {
            return container;
        }
        var below = $('<div class="ivhl-below"/>').append($('<b/>').text(bm.grid.now));
        if (bm.grid.failed) {
            below.append(' ', $('<a class="ivhl-fails"/>').attr('href', '#' + bm.grid.link + '?x-axis=torch')
                                       .text(bm.grid.failed));
        }
        below.append(' ', $('<a/>').attr('href', '#' + bm.grid.speedup + '?x-axis=torch')
                                   .text('along releases'));
        below.append($('<div/>').text(bm.grid.where));
        return $('<div class="ivhl-cell"/>').append(container, below);
    }

    /* The page of regressions: an item of ours has an eighth part. */
    function lead(data, group) {
        var count = data.regressions.length;
        var own = data.regressions.filter(function(item) { return item[7]; }).length;
        var text = count ? own + ' found by ivhl regressions, along commits, PyTorch releases and Pythons' +
            (count > own ? '; ' + (count - own) + " by asv in the project's own suite." : '.') :
            'Nothing got worse: neither in the records of ivhl, along commits, PyTorch releases and ' +
            "Pythons, nor in the project's own asv suite. `ivhl regressions --all` also lists what got better.";
        return $('<div/>').append($('<p/>').text(text), count > own ? group : null);
    }

    function verdict(item, row, factor) {
        var own = item[7];
        row.append($('<td/>').text(own ? own.factor : factor.toFixed(2) + 'x'));
        if (own) {
            row.find('a').first().attr({href: own.url, title: own.reason});
            row.children().eq(1).text($.asv.format_date_yyyymmdd_hhmm(new Date(own.at)));
            if (own.along !== 'commit' || item[6][0][1] === null) {
                row.children().eq(2).text(own.place);
            }
        }
    }

    function times(text) {
        /* Failures that nobody expected first, then what is furthest from 1x. */
        var factor = parseFloat(text);
        return isNaN(factor) ? (text === 'fails' ? Infinity : -1) : Math.abs(Math.log(factor));
    }

    $.ivhl = {
        at: at,
        start: start,
        drawn: drawn,
        tip: tip,
        grid: grid,
        lead: lead,
        times: times,
        top: top,
        verdict: verdict,
        has_graph: has_graph,
        is_ours: function(name) { return ours(name) !== null; }
    };
})();
