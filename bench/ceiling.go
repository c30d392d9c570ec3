package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"

	"github.com/gin-gonic/gin"
)

// ServeCeiling serves the ceiling until ctx ends: a gin handler that reads the
// body and answers 204 (a create 201), the least that any server with this
// router can do. What is driven against it needs Config.NoVerify.
func ServeCeiling(ctx context.Context, l net.Listener) error {
	gin.SetMode(gin.ReleaseMode)
	engine := gin.New()
	answer := func(status int) gin.HandlerFunc {
		return func(c *gin.Context) {
			if _, err := io.Copy(io.Discard, c.Request.Body); err != nil {
				c.Status(http.StatusBadRequest)
				return
			}
			c.Status(status)
		}
	}
	for _, path := range []string{"/v1/stream/*path", "/bench/:stream"} {
		engine.PUT(path, answer(http.StatusCreated))
		engine.POST(path, answer(http.StatusNoContent))
		engine.DELETE(path, answer(http.StatusNoContent))
	}
	srv := &http.Server{Handler: engine, ReadHeaderTimeout: 10 * time.Second}
	stopped := make(chan error, 1)
	stop := context.AfterFunc(ctx, func() {
		sctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
		defer cancel()
		stopped <- srv.Shutdown(sctx)
	})
	err := srv.Serve(l)
	if stop() || !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("ceiling: %w", err)
	}
	return <-stopped
}
