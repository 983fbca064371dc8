package proxy

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// adminSocket is the name of its socket in the run directory.
	adminSocket  = "admin.sock"
	adminTimeout = 2 * time.Second
	// maxAdmin bounds an answer of the admin interface, bytes. The names of 20,000
	// clusters take 4 MiB. It may be Envoy's no more that answers, and what is read takes many
	// times as much.
	maxAdmin = 16 << 20
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
				return dial(ctx, path)
			},
			DisableKeepAlives: true, // an Envoy that was replaced must not answer
		},
	}}
}

// dial connects to the socket at a path, or to one to which a link there leads: that of an Envoy of
// another user, who may have put anything in its place. Nothing else than a socket is taken, and no
// further link followed.
func dial(ctx context.Context, path string) (net.Conn, error) {
	target, err := os.Readlink(path)
	if err != nil {
		return (&net.Dialer{}).DialContext(ctx, "unix", path)
	}
	path = filepath.Join(filepath.Dir(path), target)
	socket, err := openPath(path, unix.O_NOFOLLOW)
	if err != nil {
		return nil, err
	}
	defer socket.Close()
	info, err := socket.Stat()
	if err != nil {
		return nil, err
	}
	if info.Mode().Type() != fs.ModeSocket {
		return nil, fmt.Errorf("%s is not a socket", path)
	}
	return (&net.Dialer{}).DialContext(ctx, "unix", fmt.Sprintf("/proc/self/fd/%d", socket.Fd()))
}

// ask returns the body of an answer with status 200.
func (a *admin) ask(ctx context.Context, method, path string) ([]byte, error) {
	resp, err := a.send(ctx, a.client, method, path)
	if err != nil {
		return nil, err
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

// open returns the body of an answer with status 200, which may be long. It may take as long as ctx allows.
func (a *admin) open(ctx context.Context, path string) (io.ReadCloser, error) {
	patient := *a.client
	patient.Timeout = 0
	resp, err := a.send(ctx, &patient, http.MethodGet, path)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode != http.StatusOK {
		resp.Body.Close()
		return nil, &answerError{path: path, status: resp.StatusCode}
	}
	return resp.Body, nil
}

func (a *admin) send(ctx context.Context, by *http.Client, method, path string) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, method, "http://envoy"+path, nil)
	if err != nil {
		return nil, fmt.Errorf("ask the proxy: %w", err)
	}
	resp, err := by.Do(req)
	if err != nil {
		return nil, fmt.Errorf("ask the proxy: %w", err)
	}
	return resp, nil
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

// listeners are those that take connections, and what those wait for that do not yet, or not
// in their newest version. Both questions cost Envoy as much as there are listeners. What is
// in neither answer does not exist; one that becomes active between the two is in the second.
// An Envoy that starts up and does not say what for is an error.
func (a *admin) listeners(ctx context.Context) (serving map[string]struct{}, warming map[string][]string, err error) {
	body, err := a.ask(ctx, http.MethodGet, "/init_dump?mask=listener")
	if err != nil {
		return nil, nil, err
	}
	var dump struct {
		Unready []struct {
			Name    string   `json:"name"`
			Targets []string `json:"target_names"`
		} `json:"unready_targets_dumps"`
	}
	if err := json.Unmarshal(body, &dump); err != nil {
		return nil, nil, fmt.Errorf("read the proxy's warming listeners: %w", err)
	}
	if body, err = a.ask(ctx, http.MethodGet, "/listeners?format=json"); err != nil {
		return nil, nil, err
	}
	var list struct {
		Statuses []struct {
			Name string `json:"name"`
		} `json:"listener_statuses"`
	}
	if err := json.Unmarshal(body, &list); err != nil {
		return nil, nil, fmt.Errorf("read the proxy's listeners: %w", err)
	}
	serving, warming = map[string]struct{}{}, map[string][]string{}
	for _, u := range dump.Unready {
		// "init manager Listener-local-init-manager NAME HASH", and other managers
		if words := strings.Fields(u.Name); len(words) == 5 && words[2] == "Listener-local-init-manager" {
			warming[words[3]] = append(warming[words[3]], u.Targets...)
		}
	}
	// Until it has started up, Envoy lists as active what takes no connection yet.
	err = a.ready(ctx)
	refusal, says := errors.AsType[*answerError](err)
	switch starting := says && strings.Contains(refusal.body, "INITIALIZING"); {
	case err != nil && !says:
		return nil, nil, err
	case starting && len(warming) == 0:
		return nil, nil, fmt.Errorf("ask the proxy for its listeners: %w", err)
	case !starting:
		for _, l := range list.Statuses {
			serving[l.Name] = struct{}{}
		}
	}
	return serving, warming, nil
}

// routes are the versions of the named route configurations that requests find. Envoy
// looks at the names of all its resources, and copies those that are named.
func (a *admin) routes(ctx context.Context, names []string) (map[string]string, error) {
	quoted := make([]string, len(names))
	for i, n := range names {
		quoted[i] = regexp.QuoteMeta(n)
	}
	body, err := a.ask(ctx, http.MethodGet, "/config_dump?resource=dynamic_route_configs&mask=version_info,route_config.name&name_regex="+
		url.QueryEscape("^("+strings.Join(quoted, "|")+")$"))
	if err != nil {
		if refusal, is := errors.AsType[*answerError](err); is && refusal.status == http.StatusNotFound {
			return map[string]string{}, nil // there is none
		}
		return nil, err
	}
	var dump struct {
		Configs []struct {
			Version string `json:"version_info"`
			Routes  struct {
				Name string `json:"name"`
			} `json:"route_config"`
		} `json:"configs"`
	}
	if err := json.Unmarshal(body, &dump); err != nil {
		return nil, fmt.Errorf("read the proxy's routes: %w", err)
	}
	versions := make(map[string]string, len(dump.Configs))
	for _, c := range dump.Configs {
		versions[c.Routes.Name] = c.Version
	}
	return versions, nil
}

// figures are the requests answered so far, the connections that are open, and how many were
// taken so far, over all listeners. Envoy looks at each of its statistics to answer.
func (a *admin) figures(ctx context.Context) (requests, open, taken uint64, err error) {
	body, err := a.ask(ctx, http.MethodGet, `/stats?filter=^http\..*\.downstream_(rq_completed|cx_active|cx_total)$`)
	if err != nil {
		return 0, 0, 0, err
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
		switch name[strings.LastIndexByte(name, '.')+1:] {
		case "downstream_rq_completed":
			requests += n
		case "downstream_cx_active":
			open += n
		case "downstream_cx_total":
			taken += n
		}
	}
	return requests, open, taken, nil
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
