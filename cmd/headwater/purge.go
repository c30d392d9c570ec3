package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	"headwater/admin"
)

// purgeCmd is the options of "headwater purge".
type purgeCmd struct {
	Bucket string `arg:"" help:"The bucket's id."`
	Admin  string `help:"The admin plane of any frontend." default:"http://127.0.0.1:4438" placeholder:"URL"`
	Yes    bool   `help:"Don't ask."`
}

// Help says what a purge is.
func (*purgeCmd) Help() string {
	return "Removes a bucket with every stream in it, and bars its id for ever: nothing can be created in it again, and nothing brings it back but a restore. " +
		"A purge that is cut off is completed by running it again."
}

// errCutOff says that a purge did not come to its end.
var errCutOff = errors.New("the purge was cut off; run it again to complete it")

// Run asks, purges, and shows the progress.
func (c *purgeCmd) Run(ctx context.Context, out output, in input) error {
	if !c.Yes {
		if err := c.ask(out, in); err != nil {
			return err
		}
	}
	target := strings.TrimRight(c.Admin, "/") + "/buckets/" + url.PathEscape(c.Bucket)
	req, err := http.NewRequestWithContext(ctx, http.MethodDelete, target, http.NoBody)
	if err != nil {
		return usageError{fmt.Errorf("--admin: %w", err)}
	}
	// No limit of time for the whole: a bucket may be large.
	transport := &http.Transport{ResponseHeaderTimeout: time.Minute}
	defer transport.CloseIdleConnections()
	res, err := (&http.Client{Transport: transport}).Do(req)
	if err != nil {
		return fmt.Errorf("the admin plane does not answer: %w", err)
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		return refusal(res)
	}
	return c.follow(res.Body, out)
}

// ask has the bucket's id typed again: what is done can't be undone.
func (c *purgeCmd) ask(out output, in input) error {
	if !in.terminal {
		return usageError{errors.New("a purge can't be undone; say --yes where nobody can be asked")}
	}
	fmt.Fprintf(out.stderr, "Every stream of the bucket %q will be removed, and nothing can ever be created in it again.\nType the bucket's id to go on: ", c.Bucket)
	answer, err := bufio.NewReader(in.Reader).ReadString('\n')
	if err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	if strings.TrimSpace(answer) != c.Bucket {
		return usageError{errors.New("nothing was purged")}
	}
	return nil
}

// follow prints the progress until the last line.
func (c *purgeCmd) follow(body io.Reader, out output) error {
	var shown time.Time
	lines := json.NewDecoder(body)
	for {
		var p admin.Progress
		err := lines.Decode(&p)
		switch {
		case err != nil:
			return fmt.Errorf("%w: %w", errCutOff, err)
		case p.Error != "":
			return fmt.Errorf("%w: %s, after %d streams", errCutOff, p.Error, p.Removed)
		case p.Done:
			fmt.Fprintf(out.stdout, "%s: purged, %d streams removed\n", c.Bucket, p.Removed)
			return nil
		case time.Since(shown) >= time.Second:
			shown = time.Now()
			fmt.Fprintf(out.stderr, "%s: %d streams removed\n", c.Bucket, p.Removed)
		}
	}
}

// refusal is the error that an answer other than 200 carries.
func refusal(res *http.Response) error {
	var p struct {
		Code, Detail string
	}
	body, err := io.ReadAll(io.LimitReader(res.Body, 64<<10))
	if err != nil || json.Unmarshal(body, &p) != nil || p.Detail == "" {
		return fmt.Errorf("the admin plane answers %s", res.Status)
	}
	err = fmt.Errorf("%s (%s)", p.Detail, p.Code)
	if res.StatusCode == http.StatusBadRequest {
		return usageError{err}
	}
	return err
}

// input is where a command reads what a person types.
type input struct {
	io.Reader
	terminal bool
}

// standardInput tells whether somebody can be asked. The null device passes for
// a terminal too; its answer is then that of nobody.
func standardInput() input {
	st, err := os.Stdin.Stat()
	return input{os.Stdin, err == nil && st.Mode()&os.ModeCharDevice != 0}
}
