package admin

import (
	"net/http"

	"github.com/prometheus/client_golang/prometheus"

	"headwater/fdblayer"
	"headwater/frontend"
	"headwater/subscriptions"
)

type (
	storeMetric        = metric[fdblayer.Stats]
	frontendMetric     = metric[frontend.Stats]
	subscriptionMetric = metric[subscriptions.Stats]
)

const (
	counter = prometheus.CounterValue
	gauge   = prometheus.GaugeValue
)

func storeMetrics(d describer) []storeMetric {
	const commits, commitsHelp = "headwater_lane_commits_total", "Batches committed: warm ones without a read, cold ones after reading."
	return []storeMetric{
		{d(commits, commitsHelp, prometheus.Labels{"path": "warm"}), counter, func(s fdblayer.Stats) float64 { return float64(s.WarmCommits) }},
		{d(commits, commitsHelp, prometheus.Labels{"path": "cold"}), counter, func(s fdblayer.Stats) float64 { return float64(s.ColdCommits) }},
		{d("headwater_lane_requests_total", "Writes in these batches; divided by the commits, the size of a batch.", nil), counter, func(s fdblayer.Stats) float64 { return float64(s.Requests) }},
		{d("headwater_lane_conflicts_total", "Attempts refused because another frontend had changed what they were judged by.", nil), counter, func(s fdblayer.Stats) float64 { return float64(s.Conflicts) }},
		{d("headwater_lane_unknown_outcomes_total", "Attempts whose outcome the store could not tell and that were looked up.", nil), counter, func(s fdblayer.Stats) float64 { return float64(s.Unknown) }},
		{d("headwater_lane_queued_requests", "Writes that wait for the next batch.", nil), gauge, func(s fdblayer.Stats) float64 { return float64(s.QueuedRequests) }},
		{d("headwater_lane_queued_bytes", "Bytes of these writes.", nil), gauge, func(s fdblayer.Stats) float64 { return float64(s.QueuedBytes) }},
		{d("headwater_live_readers", "Long-polls and SSE responses under way.", nil), gauge, func(s fdblayer.Stats) float64 { return float64(s.LiveReaders) }},
		{d("headwater_live_topics", "Streams they follow, each with one watch in the store.", nil), gauge, func(s fdblayer.Stats) float64 { return float64(s.Topics) }},
	}
}

func frontendMetrics(d describer) []frontendMetric {
	return []frontendMetric{
		{d("headwater_http_requests_in_flight", "Requests whose response has not ended, waiting live reads among them.", nil), gauge, func(s frontend.Stats) float64 { return float64(s.Open) }},
		{d("headwater_http_requests_running", "Requests that count against --max-requests.", nil), gauge, func(s frontend.Stats) float64 { return float64(s.Running) }},
		{d("headwater_http_request_body_bytes_in_flight", "Memory that bodies being received take of --max-bodies-in-flight.", nil), gauge, func(s frontend.Stats) float64 { return float64(s.BodyBytes) }},
		{d("headwater_http_response_bytes_in_flight", "Memory that responses take of --max-responses-in-flight until their clients have taken them.", nil), gauge, func(s frontend.Stats) float64 { return float64(s.ResponseBytes) }},
		{d("headwater_draining", "1 once the frontend drains and /readyz fails.", nil), gauge, func(s frontend.Stats) float64 {
			if s.Draining {
				return 1
			}
			return 0
		}},
	}
}

func subscriptionMetrics(d describer) []subscriptionMetric {
	const deliveries, deliveriesHelp = "headwater_subscription_deliveries_total", "Deliveries to subscribers: webhooks taken, wake events written, or either failed."
	return []subscriptionMetric{
		{d("headwater_subscription_wakes_total", "Wakes begun or announced again by this frontend.", nil), counter, func(s subscriptions.Stats) float64 { return float64(s.Wakes) }},
		{d(deliveries, deliveriesHelp, prometheus.Labels{"result": "webhook"}), counter, func(s subscriptions.Stats) float64 { return float64(s.Delivered) }},
		{d(deliveries, deliveriesHelp, prometheus.Labels{"result": "wake_event"}), counter, func(s subscriptions.Stats) float64 { return float64(s.Announced) }},
		{d(deliveries, deliveriesHelp, prometheus.Labels{"result": "failed"}), counter, func(s subscriptions.Stats) float64 { return float64(s.Failed) }},
		{d("headwater_subscription_leases_expired_total", "Leases that ended by themselves.", nil), counter, func(s subscriptions.Stats) float64 { return float64(s.Expired) }},
		{d("headwater_subscription_fenced_total", "Requests refused for a wake that was not current.", nil), counter, func(s subscriptions.Stats) float64 { return float64(s.Fenced) }},
		{d("headwater_subscription_parked_total", "Waits for a place at a webhook's host.", nil), counter, func(s subscriptions.Stats) float64 { return float64(s.Parked) }},
		{d("headwater_subscription_busy", "Deliveries and tasks under way.", nil), gauge, func(s subscriptions.Stats) float64 { return float64(s.Busy) }},
	}
}

// stats answers with the sources' numbers under their own names.
func (p *Plane) stats(w http.ResponseWriter, _ *http.Request) {
	m := p.opts.Metrics
	var out struct {
		Build         Build
		Store         *fdblayer.Stats      `json:",omitempty"`
		Frontend      *frontend.Stats      `json:",omitempty"`
		Subscriptions *subscriptions.Stats `json:",omitempty"`
	}
	out.Build = m.build
	if f := m.sources.Store; f != nil {
		s := f()
		out.Store = &s
	}
	if f := m.sources.Frontend; f != nil {
		s := f()
		out.Frontend = &s
	}
	if f := m.sources.Subscriptions; f != nil {
		s := f()
		out.Subscriptions = &s
	}
	w.Header().Set("Content-Type", "application/json")
	writeJSON(w, http.StatusOK, out)
}
