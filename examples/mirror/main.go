package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/signal"

	"github.com/alecthomas/kong"
)

func main() {
	var args struct {
		Stream []string `required:"" placeholder:"URL" help:"URL of the stream; give it once for each frontend."`
	}
	kong.Parse(&args, kong.Description("Keeps a copy of the key-value state that a JSON stream of changes folds to."))
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	m := newMirror(args.Stream...)
	m.changed = func(s state, offset string) {
		text, err := json.Marshal(s)
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return
		}
		fmt.Printf("%s %s\n", offset, text)
	}
	m.run(ctx)
}
