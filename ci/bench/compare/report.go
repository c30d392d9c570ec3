package main

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"headwater/bench"
)

// summary is one server's medians over the rounds of one case.
type summary struct {
	server    string
	value     float64 // of the case's metric
	low, high float64
	ops, mb   float64
	p50, p99  float64 // of operations
	d50, d99  float64 // of deliveries
	cores     float64
	client    float64
	rss       float64
	perOp     float64 // server's CPU time, µs
	perEvent  float64
	runs      int
	failures  int
	failure   string
	refused   int64
}

// summarise returns the servers of a case in the order of the tables.
func summarise(f figures, c benchCase) []summary {
	var all []summary
	for _, name := range order {
		s := summary{server: name}
		var good []bench.Result
		for _, m := range f.Runs {
			if m.Case != c.name || m.Server != name {
				continue
			}
			if s.runs++; m.Failure != "" {
				s.failures++
				s.failure = cmp.Or(s.failure, m.Failure)
				continue
			}
			good = append(good, m.Result)
		}
		if s.runs == 0 {
			continue
		}
		med := func(of func(bench.Result) float64) float64 {
			var vs []float64
			for _, r := range good {
				vs = append(vs, of(r))
			}
			return median(vs)
		}
		s.value = med(c.metric.of)
		for i, r := range good {
			v := c.metric.of(r)
			if s.high = max(s.high, v); i == 0 || v < s.low {
				s.low = v
			}
			for _, n := range r.Refused {
				s.refused += n
			}
		}
		s.ops = med(func(r bench.Result) float64 { return r.OpsPerSec })
		s.mb = med(func(r bench.Result) float64 { return r.MBPerSec })
		s.p50 = med(func(r bench.Result) float64 { return of(r.Latency).P50 })
		s.p99 = med(func(r bench.Result) float64 { return of(r.Latency).P99 })
		s.d50 = med(func(r bench.Result) float64 { return of(r.Delivery).P50 })
		s.d99 = med(func(r bench.Result) float64 { return of(r.Delivery).P99 })
		s.cores = med(func(r bench.Result) float64 { return r.ServerCores })
		s.client = med(func(r bench.Result) float64 { return r.ClientCores })
		s.rss = med(func(r bench.Result) float64 { return float64(r.ServerPeak) })
		s.perOp = med(func(r bench.Result) float64 { return r.ServerPerOp })
		s.perEvent = med(func(r bench.Result) float64 { return r.ServerPerEvent })
		all = append(all, s)
	}
	return all
}

func of(l *bench.Latency) bench.Latency {
	if l == nil {
		return bench.Latency{}
	}
	return *l
}

// median is NaN of nothing.
func median(vs []float64) float64 {
	if len(vs) == 0 {
		return math.NaN()
	}
	vs = slices.Sorted(slices.Values(vs))
	n := len(vs)
	return (vs[(n-1)/2] + vs[n/2]) / 2
}

// number writes a value with three digits that count.
func number(v float64) string {
	switch a := math.Abs(v); {
	case math.IsNaN(v) || math.IsInf(v, 0):
		return "–"
	case a >= 100_000:
		return fmt.Sprintf("%.0f k", v/1e3)
	case a >= 10_000:
		return fmt.Sprintf("%.1f k", v/1e3)
	case a >= 1_000:
		return fmt.Sprintf("%.2f k", v/1e3)
	case a >= 100:
		return fmt.Sprintf("%.0f", v)
	case a >= 10:
		return fmt.Sprintf("%.1f", v)
	}
	return fmt.Sprintf("%.2f", v)
}

// better is how many times better a is than b.
func (m metric) better(a, b float64) float64 {
	if m.less {
		a, b = b, a
	}
	if b <= 0 || a < 0 {
		return math.NaN()
	}
	return a / b
}

func markdown(f figures, base string) string {
	var b strings.Builder
	p := func(format string, args ...any) { fmt.Fprintf(&b, format, args...) }
	m := f.Machine
	p("# Headwater beside its peers\n\n")
	p("Written by `go run ./ci/bench/compare` from [%s.json](%s.json); do not edit.\n\n", base, base)
	p("| | |\n|---|---|\n")
	for _, row := range [][2]string{
		{"when", m.Time.Format(time.RFC3339)},
		{"commit", m.Commit},
		{"machine", fmt.Sprintf("%d cores, %s, memory %s", m.Cores, m.CPU, m.Memory)},
		{"kernel", m.Kernel},
		{"Go, Node", m.Go + ", " + cmp.Or(m.Node, "none")},
		{"load average", fmt.Sprintf("%s before; per round: %s (the runs themselves make about two)", m.Load, strings.Join(m.Loads, ", "))},
		{"fsync of 512 B, raw loop", fmt.Sprintf("p50 %.2f ms, p99 %.2f ms before; p50 per round: %s", m.Fsync50, m.Fsync99, list(m.Fsyncs))},
		{"method", fmt.Sprintf("%d rounds, in each of which the servers take turns at every case; every run on an empty server, warm-up %gs, measured %gs; medians (least–most); load generator and server share the cores", f.Rounds, f.Warmup, f.Duration)},
	} {
		p("| %s | %s |\n", row[0], row[1])
	}
	p("\nEvery run but those of the ceiling is verified: each record written is read back, each record delivered is checked, and a lost, repeated, altered or misplaced one fails the run. ")
	p("The ceiling is a gin handler that reads the body and answers 204. Closed loops unless a rate is given; open loops count latency from the intended send time.\n\n")
	p("![plot](%s.svg)\n\n", base)
	p("| server | an answered append survives |\n|---|---|\n")
	durability := map[string]string{}
	for name, c := range (&yard{}).contenders() {
		durability[name] = c.durability
	}
	for _, name := range order {
		why, gone := f.Absent[name]
		switch ran := slices.ContainsFunc(f.Runs, func(m measured) bool { return m.Server == name }); {
		case ran:
			p("| %s | %s |\n", name, durability[name])
		case gone:
			p("| %s | not measured: %s |\n", name, strings.ReplaceAll(why, "\n", "; "))
		}
	}
	for _, c := range cases {
		if s := summarise(f, c); len(s) > 0 {
			b.WriteString("\n")
			table(&b, c, s)
		}
	}
	return b.String()
}

// table writes the table of one case.
func table(b *strings.Builder, c benchCase, rows []summary) {
	p := func(format string, args ...any) { fmt.Fprintf(b, format, args...) }
	p("## %s\n\n%s. Metric: %s.\n\n", c.name, strings.ToUpper(c.about[:1])+c.about[1:], c.metric.name)
	var references []summary
	for _, r := range rows {
		if !strings.HasPrefix(r.server, "headwater-") && !math.IsNaN(r.value) {
			references = append(references, r)
		}
	}
	live := slices.ContainsFunc(rows, func(r summary) bool { return r.d99 > 0 })
	columns := []string{"server", c.metric.name}
	for _, r := range references {
		columns = append(columns, "× "+r.server)
	}
	columns = append(columns, "ops/s", "MB/s", "p50 ms", "p99 ms")
	if live {
		columns = append(columns, "delivery p50 ms", "delivery p99 ms", "server µs/event")
	}
	columns = append(columns, "server µs/op", "server cores", "client cores", "peak RSS MB")
	p("| %s |\n|---%s|\n", strings.Join(columns, " | "), strings.Repeat("|--:", len(columns)-1))
	for _, r := range rows {
		cells := []string{r.server, fmt.Sprintf("**%s** (%s–%s)", number(r.value), number(r.low), number(r.high))}
		if math.IsNaN(r.value) {
			cells[1] = "failed"
		}
		for _, ref := range references {
			cells = append(cells, number(c.metric.better(r.value, ref.value)))
		}
		for _, v := range []float64{r.ops, r.mb, r.p50, r.p99} {
			cells = append(cells, number(v))
		}
		if live {
			cells = append(cells, number(r.d50), number(r.d99), number(r.perEvent))
		}
		p("| %s |\n", strings.Join(append(cells, number(r.perOp), number(r.cores), number(r.client), number(r.rss/1e6)), " | "))
	}
	for _, r := range rows {
		if r.failures > 0 {
			p("\n%s failed in %d of %d runs: %s\n", r.server, r.failures, r.runs, clip(strings.ReplaceAll(r.failure, "\n", "; ")))
		}
		if r.refused > 0 {
			p("\n%s refused %d requests with 429 or 503.\n", r.server, r.refused)
		}
	}
}

func list(vs []float64) string {
	parts := make([]string, len(vs))
	for i, v := range vs {
		parts[i] = number(v)
	}
	return strings.Join(parts, ", ")
}

// clip keeps a failure's text readable; all of it is among the figures.
func clip(s string) string {
	const most = 200
	if len(s) > most {
		return s[:most] + "..."
	}
	return s
}
