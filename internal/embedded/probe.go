package embedded

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"k8s.io/client-go/rest"
)

// probeLimit bounds one question about health.
const probeLimit = 5 * time.Second

// probe asks an API how it is.
type probe struct {
	client *http.Client
	url    string
}

func newProbe(cfg *rest.Config) (*probe, error) {
	client, err := rest.HTTPClientFor(cfg)
	if err != nil {
		return nil, fmt.Errorf("make a client for %s: %w", cfg.Host, err)
	}
	base, _, err := rest.DefaultServerUrlFor(cfg)
	if err != nil {
		return nil, fmt.Errorf("read the address %s: %w", cfg.Host, err)
	}
	return &probe{client: client, url: base.JoinPath("readyz").String()}, nil
}

// ready returns nil if the API calls itself ready, else the checks that fail.
func (p *probe) ready(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, probeLimit)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, p.url, nil)
	if err != nil {
		return err
	}
	res, err := p.client.Do(req)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	body, err := io.ReadAll(io.LimitReader(res.Body, 64<<10))
	if err != nil {
		return fmt.Errorf("read %s: %w", p.url, err)
	}
	if res.StatusCode == http.StatusOK {
		return nil
	}
	var failing []string
	for line := range strings.Lines(string(body)) {
		if name, ok := strings.CutPrefix(line, "[-]"); ok {
			failing = append(failing, strings.TrimSpace(name))
		}
	}
	if len(failing) == 0 {
		failing = []string{strings.TrimSpace(string(body))}
	}
	return errors.New("the API is not ready: " + res.Status + ": " + strings.Join(failing, "; "))
}
