package fdbcluster

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/api/types/network"
	"github.com/testcontainers/testcontainers-go"
	"github.com/testcontainers/testcontainers-go/wait"
)

const (
	image = "foundationdb/foundationdb:7.3.77"

	dockerProbe      = 2 * time.Second
	containerTimeout = 3 * time.Minute // with the pull of the image
)

// startContainer starts a throw-away cluster in a container, or returns
// [ErrNone] where no Docker engine answers.
//
// FoundationDB tells its clients the address it was given, so the port inside
// and the one on this machine must be the same number, and the address one that
// means the same on both sides: 127.0.0.1, which is what the image's host mode
// advertises. That holds for engines in a virtual machine too, where a
// container's own address can't be reached.
func startContainer(ctx context.Context) (*Cluster, error) {
	if err := probeDocker(ctx); err != nil {
		return nil, fmt.Errorf("%w (%w)", ErrNone, err)
	}
	ctx, cancel := context.WithTimeout(ctx, containerTimeout)
	defer cancel()
	number, err := freePort(ctx)
	if err != nil {
		return nil, fmt.Errorf("fdbcluster: %w", err)
	}
	port := strconv.Itoa(number)
	inside, err := network.ParsePort(port + "/tcp")
	if err != nil {
		return nil, fmt.Errorf("fdbcluster: %w", err)
	}
	// Ready means configured and answering. The command is repeated until it
	// succeeds, and a configure that worked fails the second time.
	ready := wait.ForExec([]string{"sh", "-c",
		"fdbcli --timeout 5 --exec 'configure new single ssd' || fdbcli --timeout 5 --exec getversion"})
	ctr, err := testcontainers.Run(ctx, image,
		testcontainers.WithExposedPorts(inside.String()),
		testcontainers.WithHostConfigModifier(func(c *container.HostConfig) {
			c.PortBindings = network.PortMap{inside: {{HostIP: netip.MustParseAddr("127.0.0.1"), HostPort: port}}}
		}),
		testcontainers.WithEnv(map[string]string{"FDB_NETWORKING_MODE": "host", "FDB_PORT": port}),
		testcontainers.WithWaitStrategyAndDeadline(containerTimeout, ready),
	)
	stop := func() error { return testcontainers.TerminateContainer(ctr) }
	if err != nil {
		return nil, errors.Join(fmt.Errorf("fdbcluster: start %s: %w", image, err), stop())
	}
	dir, err := os.MkdirTemp("", fmt.Sprintf("%s%d-", dirPrefix, os.Getpid()))
	if err == nil {
		// The description and id are those the image makes up when it is given none.
		err = os.WriteFile(clusterFile(dir), []byte("docker:docker@127.0.0.1:"+port+"\n"), 0o600)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("fdbcluster: %w", err), stop())
	}
	return &Cluster{File: clusterFile(dir), stop: func() error { return errors.Join(stop(), os.RemoveAll(dir)) }}, nil
}

// probeDocker finds out quickly whether there is an engine at all: the client
// library takes its time, and panics in some set-ups.
func probeDocker(ctx context.Context) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("no Docker engine: %v", r)
		}
	}()
	ctx, cancel := context.WithTimeout(ctx, dockerProbe)
	defer cancel()
	for _, host := range dockerHosts() {
		scheme, address, _ := strings.Cut(host, "://")
		var conn net.Conn
		if conn, err = new(net.Dialer).DialContext(ctx, scheme, address); err == nil {
			_ = conn.Close()
			break
		}
	}
	if err != nil {
		return fmt.Errorf("no Docker engine: %w", err)
	}
	provider, err := testcontainers.NewDockerProvider()
	if err != nil {
		return err
	}
	return provider.Health(ctx) // closes the provider, too
}

// dockerHosts are the places where an engine usually listens.
func dockerHosts() []string {
	if host := os.Getenv("DOCKER_HOST"); host != "" {
		return []string{host}
	}
	hosts := []string{"unix:///var/run/docker.sock"}
	if dir := os.Getenv("XDG_RUNTIME_DIR"); dir != "" {
		hosts = append(hosts, "unix://"+filepath.Join(dir, "docker.sock"))
	}
	if home, err := os.UserHomeDir(); err == nil {
		hosts = append(hosts,
			"unix://"+filepath.Join(home, ".docker", "run", "docker.sock"),
			"unix://"+filepath.Join(home, ".docker", "desktop", "docker.sock"))
	}
	return hosts
}
