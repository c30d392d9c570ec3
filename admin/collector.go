package admin

import (
	"github.com/prometheus/client_golang/prometheus"
)

// collector reads counters that others keep, when a scrape asks for them. All
// metrics of a source come from one call of it, so they agree with each other.
type collector struct {
	sources Sources
	descs   []*prometheus.Desc
	store   []storeMetric
	front   []frontendMetric
	subs    []subscriptionMetric
}

func newCollector(s Sources) *collector {
	c := &collector{sources: s}
	desc := func(name, help string, labels prometheus.Labels) *prometheus.Desc {
		d := prometheus.NewDesc(name, help, nil, labels)
		c.descs = append(c.descs, d)
		return d
	}
	if s.Store != nil {
		c.store = storeMetrics(desc)
	}
	if s.Frontend != nil {
		c.front = frontendMetrics(desc)
	}
	if s.Subscriptions != nil {
		c.subs = subscriptionMetrics(desc)
	}
	return c
}

// Describe implements [prometheus.Collector].
func (c *collector) Describe(out chan<- *prometheus.Desc) {
	for _, d := range c.descs {
		out <- d
	}
}

// Collect implements [prometheus.Collector].
func (c *collector) Collect(out chan<- prometheus.Metric) {
	if c.store != nil {
		collect(out, c.store, c.sources.Store())
	}
	if c.front != nil {
		collect(out, c.front, c.sources.Frontend())
	}
	if c.subs != nil {
		collect(out, c.subs, c.sources.Subscriptions())
	}
}

// metric is one number of a source's stats.
type metric[S any] struct {
	desc  *prometheus.Desc
	kind  prometheus.ValueType
	value func(S) float64
}

func collect[S any](out chan<- prometheus.Metric, metrics []metric[S], stats S) {
	for _, m := range metrics {
		out <- prometheus.MustNewConstMetric(m.desc, m.kind, m.value(stats))
	}
}

// describer makes a description and remembers it.
type describer func(name, help string, labels prometheus.Labels) *prometheus.Desc
