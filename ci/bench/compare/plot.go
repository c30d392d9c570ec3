package main

import (
	"bytes"
	"html/template"
	"math"
	"strings"
)

// The plot has a block of bars for every case. Throughput is drawn as a share
// of the best, on a linear scale; latency and memory on a logarithmic one,
// since the servers lie orders of magnitude apart.

type plot struct {
	Width, Height int
	Blocks        []block
}

type block struct {
	Y             int
	Title, Metric string
	Bars          []bar
}

type bar struct {
	X, Y, Width, TextX, TextY int
	Label, Value, Colour      string
}

const (
	plotWidth  = 900
	barX       = 170
	barSpace   = 590
	barStep    = 19
	blockTitle = 24
	blockGap   = 16
)

var colours = map[string]string{
	"ceiling": "#9aa5b1", "headwater-embedded": "#0b6bcb", "headwater-memory": "#67b0f5", "headwater-fdb": "#12407a",
	"node-memory": "#f2c14e", "node-file": "#c98a12", "rust-wal": "#a8442a", "rust-memory": "#e08a6d",
}

var plotTemplate = template.Must(template.New("plot").Parse(`<svg xmlns="http://www.w3.org/2000/svg" width="{{.Width}}" height="{{.Height}}" viewBox="0 0 {{.Width}} {{.Height}}" font-family="sans-serif" font-size="12">
<rect width="100%" height="100%" fill="#ffffff"/>
{{- range .Blocks}}
<text x="10" y="{{.Y}}" font-size="13" font-weight="bold" fill="#1f2933">{{.Title}} <tspan font-weight="normal" fill="#52606d">{{.Metric}}</tspan></text>
{{- range .Bars}}
<text x="160" y="{{.TextY}}" text-anchor="end" fill="#323f4b">{{.Label}}</text>
<rect x="{{.X}}" y="{{.Y}}" width="{{.Width}}" height="15" rx="2" fill="{{.Colour}}"/>
<text x="{{.TextX}}" y="{{.TextY}}" fill="#1f2933">{{.Value}}</text>
{{- end}}
{{- end}}
</svg>
`))

func svg(f figures) ([]byte, error) {
	p := plot{Width: plotWidth}
	y := 10
	for _, c := range cases {
		rows := summarise(f, c)
		if len(rows) == 0 {
			continue
		}
		b := block{Y: y + 16, Title: c.about, Metric: c.metric.name + map[bool]string{true: " (log scale, less is better)", false: " (more is better)"}[c.metric.less]}
		y += blockTitle
		low, high := math.Inf(1), 0.0
		for _, r := range rows {
			if r.value > 0 {
				low, high = min(low, r.value), max(high, r.value)
			}
		}
		for _, r := range rows {
			br := bar{X: barX, Y: y, TextY: y + 12, Label: r.server, Value: number(r.value), Colour: colours[r.server]}
			br.Width = int(share(c.metric, r.value, low, high) * barSpace)
			if math.IsNaN(r.value) {
				br.Value = "failed"
			}
			br.TextX = br.X + br.Width + 6
			b.Bars = append(b.Bars, br)
			y += barStep
		}
		p.Blocks = append(p.Blocks, b)
		y += blockGap
	}
	p.Height = y
	var out bytes.Buffer
	if err := plotTemplate.Execute(&out, p); err != nil {
		return nil, err
	}
	return []byte(strings.TrimLeft(out.String(), "\n")), nil
}

// share is the length of a bar, from 0 to 1. A logarithmic one begins half a
// decade below the least value, so that this still has a bar.
func share(m metric, v, low, high float64) float64 {
	switch {
	case !(v > 0) || high <= 0:
		return 0
	case !m.less:
		return v / high
	}
	from := math.Log10(low) - 0.5
	return (math.Log10(v) - from) / (math.Log10(high) - from)
}
