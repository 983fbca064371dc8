package proxy

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"
)

const (
	adminTimeout = 2 * time.Second
	// maxAdmin bounds an answer of the admin interface, bytes. The names of 20,000
	// clusters take 4 MiB.
	maxAdmin = 64 << 20
)

// admin is Envoy's admin interface on a unix socket.
type admin struct {
	path   string
	client *http.Client
}

func newAdmin(path string) *admin {
	return &admin{path: path, client: &http.Client{
		Timeout: adminTimeout,
		Transport: &http.Transport{
			DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
				return (&net.Dialer{}).DialContext(ctx, "unix", path)
			},
			DisableKeepAlives: true, // an Envoy that was replaced must not answer
		},
	}}
}

// ask returns the body of an answer with status 200.
func (a *admin) ask(ctx context.Context, method, path string) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, method, "http://envoy"+path, nil)
	if err != nil {
		return nil, fmt.Errorf("ask the proxy: %w", err)
	}
	resp, err := a.client.Do(req)
	if err != nil {
		return nil, fmt.Errorf("ask the proxy: %w", err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxAdmin))
	if err != nil {
		return nil, fmt.Errorf("ask the proxy: %w", err)
	}
	if resp.StatusCode != http.StatusOK {
		return body, &answerError{path: path, status: resp.StatusCode, body: strings.TrimSpace(string(body[:min(len(body), 200)]))}
	}
	return body, nil
}

type answerError struct {
	path   string
	status int
	body   string
}

func (e *answerError) Error() string {
	return fmt.Sprintf("the proxy answers %d to %s: %s", e.status, e.path, e.body)
}

// ready is nil when Envoy takes requests. An answerError says why it does not; any
// other error, that it does not answer.
func (a *admin) ready(ctx context.Context) error {
	_, err := a.ask(ctx, http.MethodGet, "/ready")
	return err
}

// version is Envoy's own, "1.40.0".
func (a *admin) version(ctx context.Context) (string, error) {
	body, err := a.ask(ctx, http.MethodGet, "/server_info")
	if err != nil {
		return "", err
	}
	var info struct {
		Version string `json:"version"` // "<commit>/<version>/<state>/<type>/<ssl>"
	}
	if err := json.Unmarshal(body, &info); err != nil {
		return "", fmt.Errorf("read the proxy's version: %w", err)
	}
	if parts := strings.Split(info.Version, "/"); len(parts) > 1 {
		return parts[1], nil
	}
	return info.Version, nil
}

// The lists of clusters in Envoy's configuration dump.
const (
	warmingClusters = "dynamic_warming_clusters"
	activeClusters  = "dynamic_active_clusters"
)

// clusters names the clusters of a list.
func (a *admin) clusters(ctx context.Context, list string) ([]string, error) {
	body, err := a.ask(ctx, http.MethodGet, "/config_dump?resource="+list+"&mask=cluster.name")
	if err != nil {
		return nil, err
	}
	var dump struct {
		Configs []struct {
			Cluster struct {
				Name string `json:"name"`
			} `json:"cluster"`
		} `json:"configs"`
	}
	if err := json.Unmarshal(body, &dump); err != nil {
		return nil, fmt.Errorf("read the proxy's %s: %w", list, err)
	}
	names := make([]string, 0, len(dump.Configs))
	for _, c := range dump.Configs {
		if c.Cluster.Name == "" {
			return nil, fmt.Errorf("read the proxy's %s: one has no name", list)
		}
		names = append(names, c.Cluster.Name)
	}
	return names, nil
}

// figures are the requests answered so far and the connections that are open, over
// all listeners.
func (a *admin) figures(ctx context.Context) (requests, connections uint64, err error) {
	body, err := a.ask(ctx, http.MethodGet, `/stats?filter=^http\..*\.downstream_(rq_completed|cx_active)$`)
	if err != nil {
		return 0, 0, err
	}
	for line := range strings.Lines(string(body)) {
		name, value, ok := strings.Cut(strings.TrimSpace(line), ": ")
		if !ok || strings.HasPrefix(name, "http.admin.") {
			continue
		}
		n, err := strconv.ParseUint(value, 10, 64)
		if err != nil {
			continue
		}
		if strings.HasSuffix(name, "cx_active") {
			connections += n
		} else {
			requests += n
		}
	}
	return requests, connections, nil
}

// taken is how many connections were accepted so far, over all listeners.
func (a *admin) taken(ctx context.Context) (total uint64, err error) {
	body, err := a.ask(ctx, http.MethodGet, `/stats?filter=^http\..*\.downstream_cx_total$`)
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(body)) {
		name, value, ok := strings.Cut(strings.TrimSpace(line), ": ")
		if n, err := strconv.ParseUint(value, 10, 64); ok && err == nil && !strings.HasPrefix(name, "http.admin.") {
			total += n
		}
	}
	return total, nil
}

// retire makes Envoy end each connection with the answer that is under way; it takes
// new ones as before. (Envoy's drain manager closes while health checks are failed;
// docs: "admin interface", /healthcheck/fail.)
func (a *admin) retire(ctx context.Context, on bool) error {
	path := "/healthcheck/ok"
	if on {
		path = "/healthcheck/fail"
	}
	_, err := a.ask(ctx, http.MethodPost, path)
	return err
}

// drain makes Envoy end its connections when they are idle, more and more of them; until
// the drain time is over it takes new ones.
func (a *admin) drain(ctx context.Context) error {
	_, err := a.ask(ctx, http.MethodPost, "/drain_listeners?graceful")
	return err
}

// shut makes Envoy take no new connections from now on.
func (a *admin) shut(ctx context.Context) error {
	_, err := a.ask(ctx, http.MethodPost, "/drain_listeners")
	return err
}
