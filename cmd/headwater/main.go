// Command headwater serves durable streams over HTTP. "headwater serve --help"
// explains every option; each is also an environment variable and a key of the
// configuration file.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/alecthomas/kong"
)

// Exit codes.
const (
	exitFailure = 1
	exitUsage   = 2
)

// cli is the command line.
type cli struct {
	Serve         serveCmd         `cmd:"" help:"Serve streams over HTTP."`
	Bench         benchCmd         `cmd:"" help:"Load a server and measure it."`
	Purge         purgeCmd         `cmd:"" help:"Remove a bucket for ever."`
	Subscriptions subscriptionsCmd `cmd:"" help:"See and mend the delivery of subscriptions."`
	Version       versionCmd       `cmd:"" help:"Print the version."`
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	// The first signal drains, and gives the next one its usual effect back.
	context.AfterFunc(ctx, stop)
	os.Exit(run(ctx, os.Args[1:], os.Stdout, os.Stderr))
}

// exited is the panic by which kong's end of the process, after --help, ends
// only run.
type exited struct{ code int }

// options are how the command line is parsed.
func options(ctx context.Context, out output) []kong.Option {
	return []kong.Option{
		kong.Name("headwater"),
		kong.Description("Durable streams over HTTP, on FoundationDB or on one machine."),
		kong.DefaultEnvars("HEADWATER"),
		kong.Configuration(loadConfig),
		kong.Writers(out.stdout, out.stderr),
		kong.Exit(func(code int) { panic(exited{code}) }),
		kong.ConfigureHelp(kong.HelpOptions{Compact: true, WrapUpperBound: 100}),
		kong.BindTo(ctx, (*context.Context)(nil)),
		kong.Bind(out, standardInput()),
	}
}

// run is main without the process around it.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) (code int) {
	defer func() {
		switch p := recover().(type) {
		case nil:
		case exited:
			code = p.code
		default:
			panic(p)
		}
	}()
	var c cli
	parser, err := kong.New(&c, options(ctx, output{stdout, stderr})...)
	if err != nil {
		fmt.Fprintf(stderr, "headwater: %v\n", err)
		return exitFailure
	}
	kctx, err := parser.Parse(args)
	if err != nil {
		fmt.Fprintf(stderr, "headwater: %v\nRun \"headwater --help\" for the options.\n", err)
		return exitUsage
	}
	err = kctx.Run()
	var usage usageError
	switch {
	case errors.As(err, &usage):
		fmt.Fprintf(stderr, "headwater: %v\n", err)
		return exitUsage
	case err != nil:
		fmt.Fprintf(stderr, "headwater: %v\n", err)
		return exitFailure
	}
	return 0
}

// output is where a command prints.
type output struct{ stdout, stderr io.Writer }

// usageError is an error the user mends by other options.
type usageError struct{ error }

func (e usageError) Unwrap() error { return e.error }
