package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"text/tabwriter"
	"time"

	"headwater/fdblayer"
	"headwater/frontend"
	"headwater/subscriptions"
)

// subscriptionFlags are the options of "serve" that are about subscriptions.
type subscriptionFlags struct {
	WebhookLocalhost  bool          `help:"Let webhooks go to http://localhost and http://127.0.0.x. For development." group:"Subscriptions"`
	WebhookOrigin     string        `help:"Scheme and host at which webhook receivers reach the server, as in https://streams.example; by default those of the request that made the subscription." placeholder:"URL" group:"Subscriptions"`
	WebhookTimeout    time.Duration `help:"How long a webhook's receiver may take to answer, within its lease." default:"30s" group:"Subscriptions"`
	WebhookMax        int           `help:"Most webhook requests under way on this frontend." default:"64" group:"Subscriptions"`
	WebhookMaxPerHost int           `help:"Most of them to one host." default:"8" group:"Subscriptions"`
	WebhookKeyAge     time.Duration `help:"Age at which the webhook signing key is replaced." default:"2160h" group:"Subscriptions"`
}

func (f *subscriptionFlags) startSubscriptions(store *fdblayer.Store, index *subscriptions.Index, log *slog.Logger) *subscriptions.Service {
	f.WebhookOrigin = strings.TrimSuffix(f.WebhookOrigin, "/")
	s := subscriptions.New(store, index, subscriptions.Options{
		CallbackURL: frontend.CallbackURL, AllowLocalhost: f.WebhookLocalhost, DeliveryTimeout: f.WebhookTimeout,
		MaxDeliveries: f.WebhookMax, MaxPerHost: f.WebhookMaxPerHost, RotateKeys: f.WebhookKeyAge, Logger: log,
	})
	s.Start()
	return s
}

// subscriptionsCmd is the operator's view of subscriptions. It works on the
// store itself: FoundationDB's, or an embedded one that no server has open.
type subscriptionsCmd struct {
	List  listSubscriptionsCmd `cmd:"" help:"List subscriptions and how their delivery goes."`
	Show  showSubscriptionCmd  `cmd:"" help:"Show one subscription with its cursors."`
	Retry retrySubscriptionCmd `cmd:"" help:"Make the next attempt of a failed delivery now."`
}

type listSubscriptionsCmd struct {
	storeFlags
	Bucket *string `help:"Only those of a bucket; empty is the base surface." placeholder:"ID"`
	Failed bool    `help:"Only those whose last delivery failed."`
}

type showSubscriptionCmd struct {
	storeFlags
	Bucket string `help:"Bucket; empty is the base surface." placeholder:"ID"`
	ID     string `arg:"" help:"Subscription id."`
}

type retrySubscriptionCmd struct {
	storeFlags
	Bucket string `help:"Bucket; empty is the base surface." placeholder:"ID"`
	ID     string `arg:"" help:"Subscription id."`
}

// listPage is how many subscriptions one read of the list gets.
const listPage = 500

// Run prints one line for each subscription.
func (c *listSubscriptionsCmd) Run(ctx context.Context, out output) error {
	return c.with(ctx, out, func(s *subscriptions.Service) error {
		w := tabwriter.NewWriter(out.stdout, 0, 0, 2, ' ', 0)
		fmt.Fprintln(w, "BUCKET\tID\tTYPE\tSTATUS\tPHASE\tGENERATION\tATTEMPTS\tNEXT ATTEMPT\tLAST ERROR\tTO")
		var after subscriptions.ID
		for {
			page, err := s.ListAll(ctx, after, listPage)
			if err != nil {
				return err
			}
			for _, sub := range page {
				after = sub.ID
				if c.Bucket != nil && *c.Bucket != sub.ID.Bucket || c.Failed && !sub.Failed {
					continue
				}
				d := sub.Delivery
				fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%d\t%d\t%s\t%s\t%s\n", dash(sub.ID.Bucket), sub.ID.Name, sub.Type, statusOf(sub),
					d.Phase, d.Generation, d.Attempts, timeText(d.NextAttempt), why(d), sub.URL+sub.WakeStream)
			}
			if len(page) < listPage {
				return w.Flush()
			}
		}
	})
}

// Run prints everything about one subscription.
func (c *showSubscriptionCmd) Run(ctx context.Context, out output) error {
	return c.with(ctx, out, func(s *subscriptions.Service) error {
		sub, err := s.Get(ctx, subscriptions.ID{Bucket: c.Bucket, Name: c.ID})
		if err != nil {
			return notFound(err)
		}
		d := sub.Delivery
		w := tabwriter.NewWriter(out.stdout, 0, 0, 2, ' ', 0)
		for _, row := range [][2]string{
			{"id", sub.ID.Name}, {"bucket", dash(sub.ID.Bucket)}, {"type", string(sub.Type)}, {"pattern", dash(sub.Pattern)},
			{"webhook", dash(sub.URL)}, {"wake stream", dash(sub.WakeStream)}, {"lease", sub.Lease.String()},
			{"created", timeText(sub.Created)}, {"description", dash(sub.Description)},
			{"status", statusOf(sub)}, {"phase", d.Phase}, {"generation", fmt.Sprint(d.Generation)},
			{"holder", dash(d.Holder)}, {"lease until", timeText(d.LeaseUntil)},
			{"failures in a row", fmt.Sprint(d.Attempts)}, {"last error", why(d)}, {"last error at", timeText(d.LastErrorAt)},
			{"next attempt", timeText(d.NextAttempt)},
			{"delivered, failed, expired", fmt.Sprintf("%d, %d, %d", d.Delivered, d.Failed, d.Expired)},
		} {
			fmt.Fprintf(w, "%s\t%s\n", row[0], row[1])
		}
		fmt.Fprintln(w, "\nSTREAM\tLINK\tACKED")
		for _, l := range sub.Links {
			fmt.Fprintf(w, "%s\t%s\t%s\n", l.Path, l.Type, l.Acked)
		}
		if sub.MoreLinks {
			fmt.Fprintln(w, "(more are not listed)")
		}
		return w.Flush()
	})
}

// Run makes the next attempt due; whichever server runs makes it.
func (c *retrySubscriptionCmd) Run(ctx context.Context, out output) error {
	return c.with(ctx, out, func(s *subscriptions.Service) error {
		id := subscriptions.ID{Bucket: c.Bucket, Name: c.ID}
		if err := s.Retry(ctx, id); err != nil {
			return notFound(err)
		}
		sub, err := s.Get(ctx, id)
		if err != nil {
			return err
		}
		fmt.Fprintf(out.stdout, "%s is %s (%s)\n", c.ID, statusOf(sub), sub.Delivery.Phase)
		return nil
	})
}

func notFound(err error) error {
	var e *subscriptions.Error
	if errors.As(err, &e) {
		return usageError{errors.New(e.Detail)}
	}
	return err
}

func statusOf(sub subscriptions.Subscription) string {
	if sub.Failed {
		return "failed"
	}
	return "active"
}

func why(d subscriptions.Delivery) string {
	if d.LastStatus != 0 {
		return fmt.Sprintf("%s %d", d.LastError, d.LastStatus)
	}
	return dash(d.LastError)
}

func dash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

func timeText(t time.Time) string {
	if t.IsZero() {
		return "-"
	}
	return t.UTC().Format(time.RFC3339)
}

// storeFlags say which store a command without a server works on.
type storeFlags struct {
	Store       string `help:"Where streams are kept: ${enum}. An embedded store must not be open in a server." enum:"embedded,fdb" default:"embedded" group:"Store"`
	DataDir     string `help:"Directory of the embedded store." default:"./data" type:"path" group:"Store"`
	ClusterFile string `help:"FoundationDB's cluster file; the client library's default if empty." type:"path" placeholder:"FILE" group:"Store"`
	KeyPrefix   string `help:"Prefix of all keys." default:"hw" group:"Store"`
	logFlags
}

// with opens the store for fn, without any background work.
func (f *storeFlags) with(ctx context.Context, out output, fn func(*subscriptions.Service) error) (err error) {
	log := f.logger(out.stderr)
	serve := serveCmd{Store: f.Store, DataDir: f.DataDir, ClusterFile: f.ClusterFile}
	db, err := serve.openEngine(ctx, log)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	opening, cancel := context.WithTimeout(ctx, openTimeout)
	defer cancel()
	index := subscriptions.NewIndex()
	store, err := fdblayer.Open(opening, db, fdblayer.Options{Prefix: []byte(f.KeyPrefix), Followers: index, SweepInterval: -1, Logger: log})
	if err != nil {
		return err
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTimeout)
		defer cancel()
		err = errors.Join(err, store.Close(ctx))
	}()
	return fn(subscriptions.New(store, index, subscriptions.Options{Logger: log}))
}
