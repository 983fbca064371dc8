package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"

	"fairlead.dev/internal/model"
	"fairlead.dev/internal/xds/envoytest"
)

// Run, Status, Warming and Active make the bench the agent's Proxy.
func (b *bench) Run(ctx context.Context, _ func()) error { <-ctx.Done(); return nil }

func (b *bench) Status() model.ProxyStatus { return model.ProxyStatus{State: proxyReady} }

func (b *bench) Traffic(context.Context) (model.Traffic, error) { return model.Traffic{}, nil }

func (b *bench) Warming(ctx context.Context) ([]string, error) {
	return b.clusters(ctx, "dynamic_warming_clusters")
}

func (b *bench) Active(ctx context.Context) ([]string, error) {
	return b.clusters(ctx, "dynamic_active_clusters")
}

func (b *bench) clusters(ctx context.Context, list string) ([]string, error) {
	e := b.running()
	if e == nil {
		return nil, errors.New("no envoy yet")
	}
	var dump struct {
		Configs []struct{ Cluster struct{ Name string } }
	}
	if err := readAdmin(ctx, e, "/config_dump?resource="+list+"&mask=cluster.name", &dump); err != nil {
		return nil, err
	}
	var names []string
	for _, c := range dump.Configs {
		names = append(names, c.Cluster.Name)
	}
	return names, nil
}

// Listeners, Routes and Replace make the bench a Witness.
func (b *bench) Listeners(ctx context.Context) (map[string]struct{}, map[string][]string, error) {
	e := b.running()
	if e == nil {
		return nil, nil, errors.New("no envoy yet")
	}
	var dump struct {
		Unready []struct {
			Name    string
			Targets []string `json:"target_names"`
		} `json:"unready_targets_dumps"`
	}
	var list struct {
		Statuses []struct{ Name string } `json:"listener_statuses"`
	}
	if err := readAdmin(ctx, e, "/init_dump?mask=listener", &dump); err != nil {
		return nil, nil, err
	}
	if err := readAdmin(ctx, e, "/listeners?format=json", &list); err != nil {
		return nil, nil, err
	}
	serving, warming := map[string]struct{}{}, map[string][]string{}
	for _, l := range list.Statuses {
		serving[l.Name] = struct{}{}
	}
	for _, u := range dump.Unready {
		words := strings.Fields(u.Name) // as in driver/proxy
		warming[words[max(0, len(words)-2)]] = u.Targets
	}
	return serving, warming, nil
}

func (b *bench) Routes(ctx context.Context, names []string) (map[string]string, error) {
	e := b.running()
	if e == nil {
		return nil, errors.New("no envoy yet")
	}
	body, err := e.Admin(ctx, http.MethodGet, "/config_dump?resource=dynamic_route_configs&mask=version_info,route_config.name&name_regex="+
		url.QueryEscape("^("+strings.Join(names, "|")+")$"))
	if err != nil {
		return nil, err
	}
	var dump struct {
		Configs []struct {
			Version string                `json:"version_info"`
			Routes  struct{ Name string } `json:"route_config"`
		}
	}
	versions := map[string]string{}
	if strings.HasPrefix(body, "{") { // otherwise it says that there are none
		if err := json.Unmarshal([]byte(body), &dump); err != nil {
			return nil, fmt.Errorf("%w: %s", err, body)
		}
	}
	for _, c := range dump.Configs {
		versions[c.Routes.Name] = c.Version
	}
	return versions, nil
}

func (b *bench) Replace(reason string) { b.t.Errorf("Envoy is to be replaced: %s", reason) }

// readAdmin reads an answer of the admin interface.
func readAdmin(ctx context.Context, e *envoytest.Envoy, path string, into any) error {
	body, err := e.Admin(ctx, http.MethodGet, path)
	if err == nil {
		err = json.Unmarshal([]byte(body), into)
	}
	if err != nil {
		return fmt.Errorf("%s: %w: %s", path, err, body)
	}
	return nil
}
