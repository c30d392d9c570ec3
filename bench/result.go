package bench

import (
	"fmt"
	"io"
	"runtime"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
)

// Result is what a run measured.
type Result struct {
	Workload string `json:"workload"`
	About    string `json:"about"`
	URL      string `json:"url"`
	Layout   string `json:"layout"`
	// Loop says what the latencies mean, in words.
	Loop string `json:"loop"`
	// Open tells latencies that count from the intended send time.
	Open        bool    `json:"open_loop"`
	Rate        float64 `json:"rate,omitempty"`
	Writers     int     `json:"writers,omitempty"`
	Readers     int     `json:"readers,omitempty"`
	Streams     int     `json:"streams,omitempty"`
	Size        int     `json:"size"`
	InFlight    int     `json:"in_flight,omitempty"`
	Live        string  `json:"live,omitempty"`
	ContentType string  `json:"content_type"`
	Warmup      float64 `json:"warmup_s"`
	Duration    float64 `json:"duration_s"`

	// Ops are the operations that ended within the measured time.
	Ops       int64   `json:"ops"`
	OpsPerSec float64 `json:"ops_per_s"`
	// MBPerSec counts the bytes of records in operations, in 10^6.
	MBPerSec float64 `json:"mb_per_s"`
	// PerSec is the rate of each whole second.
	PerSec []float64 `json:"per_second,omitempty"`
	// Latency is that of operations, Service the same from the actual sending
	// (open loop), Delivery that from append to receipt by each live reader.
	Latency  *Latency `json:"latency,omitempty"`
	Service  *Latency `json:"service,omitempty"`
	Delivery *Latency `json:"delivery,omitempty"`

	// Refused counts answers 429 and 503, Errors other failures by their text.
	Refused map[string]int64 `json:"refused,omitempty"`
	Errors  map[string]int64 `json:"errors,omitempty"`

	// ClientCores and ServerCores are CPU seconds per second.
	ClientCores float64 `json:"client_cores"`
	ServerCores float64 `json:"server_cores,omitempty"`
	ServerRSS   int64   `json:"server_rss_bytes,omitempty"`
	ServerPeak  int64   `json:"server_peak_rss_bytes,omitempty"`
	// ServerPerOp and ServerPerEvent are the server's CPU time for each
	// operation and for each delivered record, in microseconds. Unlike rates,
	// they hardly depend on what else the machine does.
	ServerPerOp    float64 `json:"server_us_per_op,omitempty"`
	ServerPerEvent float64 `json:"server_us_per_event,omitempty"`
	// Figures are those of the workload alone.
	Figures []Figure `json:"figures,omitempty"`

	Verification Verification `json:"verification"`
	GoVersion    string       `json:"go_version"`
}

// Figure is a measured number with its name.
type Figure struct {
	Name  string  `json:"name"`
	Value float64 `json:"value"`
	Unit  string  `json:"unit,omitempty"`
}

func (r *run) figure(name string, value float64, unit string) {
	r.extra = append(r.extra, Figure{name, value, unit})
}

func (r *run) result() Result {
	c := r.cfg
	seconds := c.Duration.Seconds()
	res := Result{
		Workload: c.Workload, About: About(c.Workload), URL: c.URL, Layout: c.Layout,
		Open: c.Rate > 0, Rate: c.Rate,
		Writers: c.Writers, Readers: c.Readers, Streams: c.Streams, Size: c.Size,
		InFlight: c.InFlight, Live: c.Live, ContentType: c.ContentType,
		Warmup: c.Warmup.Seconds(), Duration: seconds,
		Ops: r.done.total(), PerSec: r.perSec,
		Refused: r.refused, Errors: r.errors,
		Figures:      r.extra,
		Verification: r.found,
		GoVersion:    runtime.Version(),
	}
	res.Verification.Skipped = c.NoVerify
	res.OpsPerSec = float64(res.Ops) / seconds
	res.MBPerSec = float64(r.bytes.total()) / seconds / 1e6
	res.ClientCores = r.usage.client.cpu / seconds
	if s := r.usage.server; s != nil {
		res.ServerCores = s.cpu / seconds
		res.ServerRSS, res.ServerPeak = s.rss, s.peak
		if res.Ops > 0 {
			res.ServerPerOp = s.cpu * 1e6 / float64(res.Ops)
		}
		if events := r.delivery.merged().TotalCount(); events > 0 {
			res.ServerPerEvent = s.cpu * 1e6 / float64(events)
		}
	}
	res.Loop = "closed loop: each connection waits for its answer; latencies are not corrected for coordinated omission"
	if res.Open {
		res.Loop = fmt.Sprintf("open loop at %g/s: latencies count from the intended send time", c.Rate)
	}
	for _, d := range []struct {
		from *recorder
		to   **Latency
	}{{r.latency, &res.Latency}, {r.service, &res.Service}, {r.delivery, &res.Delivery}} {
		if l := d.from.latency(); l.Count > 0 {
			*d.to = &l
		}
	}
	return res
}

// Print writes a result for people.
func (res Result) Print(w io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "%s: %s\n", res.Workload, res.About)
	fmt.Fprintf(&b, "%s, layout %s\n%s\n", res.URL, res.Layout, res.Loop)
	var shape []string
	for _, p := range []struct {
		n    int
		what string
	}{{res.Writers, "writers"}, {res.InFlight, "requests under way each"}, {res.Readers, res.Live + " readers"}, {res.Streams, "streams"}} {
		if p.n > 0 {
			shape = append(shape, fmt.Sprintf("%d %s", p.n, strings.TrimSpace(p.what)))
		}
	}
	fmt.Fprintf(&b, "%s, records of %d B (%s); warm-up %v, measured %v\n\n", strings.Join(shape, ", "), res.Size, res.ContentType,
		time.Duration(res.Warmup*1e9), time.Duration(res.Duration*1e9))
	if res.Ops > 0 {
		if err := res.printRates(&b); err != nil {
			return err
		}
	}
	fmt.Fprintf(&b, "  client %.2f cores", res.ClientCores)
	if res.ServerRSS > 0 {
		fmt.Fprintf(&b, "; server %.2f cores, memory %.1f MB, at most %.1f MB", res.ServerCores, float64(res.ServerRSS)/1e6, float64(res.ServerPeak)/1e6)
	}
	if res.ServerPerOp > 0 {
		fmt.Fprintf(&b, "; %.1f µs of its CPU time per operation", res.ServerPerOp)
	}
	if res.ServerPerEvent > 0 {
		fmt.Fprintf(&b, ", %.1f per delivered record", res.ServerPerEvent)
	}
	b.WriteString("\n")
	for _, f := range res.Figures {
		fmt.Fprintf(&b, "  %s: %.5g %s\n", f.Name, f.Value, f.Unit)
	}
	for status, n := range res.Refused {
		fmt.Fprintf(&b, "  refused with %s: %d\n", status, n)
	}
	for what, n := range res.Errors {
		fmt.Fprintf(&b, "  %d times: %s\n", n, what)
	}
	fmt.Fprintf(&b, "  %s\n", res.Verification)
	_, err := io.WriteString(w, b.String())
	return err
}

func (res Result) printRates(b *strings.Builder) error {
	fmt.Fprintf(b, "  %.0f ops/s, %.1f MB/s (%d ops)", res.OpsPerSec, res.MBPerSec, res.Ops)
	if len(res.PerSec) > 1 {
		fmt.Fprintf(b, "; from %.0f to %.0f in single seconds", slices.Min(res.PerSec), slices.Max(res.PerSec))
	}
	b.WriteString("\n\n")
	tw := tabwriter.NewWriter(b, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprint(tw, "  ms\tp50\tp90\tp99\tp99.9\tmax\tmean\tcount\t\n")
	for _, l := range []struct {
		name string
		l    *Latency
	}{{"operation", res.Latency}, {"from sending", res.Service}, {"delivery", res.Delivery}} {
		if l.l != nil {
			fmt.Fprintf(tw, "  %s\t%.2f\t%.2f\t%.2f\t%.2f\t%.2f\t%.2f\t%d\t\n", l.name, l.l.P50, l.l.P90, l.l.P99, l.l.P999, l.l.Max, l.l.Mean, l.l.Count)
		}
	}
	if err := tw.Flush(); err != nil {
		return err
	}
	b.WriteString("\n")
	return nil
}
