package dashboard

import (
	"encoding/json"
	"fmt"
)

// Options are what people choose for their Grafana.
type Options struct {
	// DataSource is the UID or the name of the Prometheus that is chosen at first; empty: Grafana's
	// default one.
	DataSource string
}

// The types of Grafana's JSON, with what our pages need of it (npm: @grafana/schema, Dashboard).
type (
	gDashboard struct {
		UID           string      `json:"uid"`
		Title         string      `json:"title"`
		Description   string      `json:"description"`
		Tags          []string    `json:"tags"`
		SchemaVersion int         `json:"schemaVersion"`
		Editable      bool        `json:"editable"`
		GraphTooltip  int         `json:"graphTooltip"` // 1: the crosshair of all panels
		Refresh       string      `json:"refresh"`
		Time          gTime       `json:"time"`
		Timezone      string      `json:"timezone"`
		Links         []gLink     `json:"links"`
		Templating    gTemplating `json:"templating"`
		Panels        []any       `json:"panels"`
	}
	gTime struct {
		From string `json:"from"`
		To   string `json:"to"`
	}
	gLink struct {
		Title       string   `json:"title"`
		Type        string   `json:"type"`
		Icon        string   `json:"icon"`
		Tooltip     string   `json:"tooltip"`
		Tags        []string `json:"tags"`
		AsDropdown  bool     `json:"asDropdown"`
		TargetBlank bool     `json:"targetBlank"`
		IncludeVars bool     `json:"includeVars"`
		KeepTime    bool     `json:"keepTime"`
	}
	gTemplating struct {
		List []any `json:"list"`
	}
	gSource struct {
		Type string `json:"type"`
		UID  string `json:"uid"`
	}
	gSourceVariable struct {
		Name    string    `json:"name"`
		Label   string    `json:"label"`
		Type    string    `json:"type"`
		Query   string    `json:"query"`
		Current *gCurrent `json:"current,omitempty"`
	}
	gCurrent struct {
		Text  any `json:"text"`
		Value any `json:"value"`
	}
	gQueryVariable struct {
		Name       string   `json:"name"`
		Label      string   `json:"label"`
		Type       string   `json:"type"`
		Datasource gSource  `json:"datasource"`
		Query      gValues  `json:"query"`
		Refresh    int      `json:"refresh"` // 2: when the time changes
		Sort       int      `json:"sort"`    // 1: alphabetically
		Multi      bool     `json:"multi"`
		IncludeAll bool     `json:"includeAll"`
		AllValue   string   `json:"allValue"`
		Current    gCurrent `json:"current"`
	}
	gValues struct {
		Query string `json:"query"`
		RefID string `json:"refId"`
	}
	gRow struct {
		ID        int    `json:"id"`
		Type      string `json:"type"`
		Title     string `json:"title"`
		Collapsed bool   `json:"collapsed"`
		GridPos   gGrid  `json:"gridPos"`
		Panels    []any  `json:"panels"`
	}
	gPanel struct {
		ID          int          `json:"id"`
		Type        string       `json:"type"`
		Title       string       `json:"title"`
		Description string       `json:"description"`
		GridPos     gGrid        `json:"gridPos"`
		Datasource  gSource      `json:"datasource"`
		Targets     []gTarget    `json:"targets"`
		FieldConfig gFieldConfig `json:"fieldConfig"`
		Options     any          `json:"options"`
	}
	gGrid struct {
		H int `json:"h"`
		W int `json:"w"`
		X int `json:"x"`
		Y int `json:"y"`
	}
	gTarget struct {
		RefID        string  `json:"refId"`
		Datasource   gSource `json:"datasource"`
		Expr         string  `json:"expr"`
		LegendFormat string  `json:"legendFormat"`
		Range        bool    `json:"range"`
		Instant      bool    `json:"instant"`
		Format       string  `json:"format"`
	}
	gFieldConfig struct {
		Defaults  gDefaults   `json:"defaults"`
		Overrides []gOverride `json:"overrides"`
	}
	gDefaults struct {
		Unit       string      `json:"unit"`
		Min        *float64    `json:"min,omitempty"`
		NoValue    string      `json:"noValue"`
		Color      *gColour    `json:"color,omitempty"`
		Thresholds gThresholds `json:"thresholds"`
		Custom     any         `json:"custom"`
	}
	gColour struct {
		Mode       string `json:"mode"`
		FixedColor string `json:"fixedColor,omitempty"`
	}
	gThresholds struct {
		Mode  string  `json:"mode"`
		Steps []gStep `json:"steps"`
	}
	gStep struct {
		Color string   `json:"color"`
		Value *float64 `json:"value"`
	}
	gOverride struct {
		Matcher    gMatcher    `json:"matcher"`
		Properties []gProperty `json:"properties"`
	}
	gMatcher struct {
		ID      string `json:"id"`
		Options string `json:"options"`
	}
	gProperty struct {
		ID    string `json:"id"`
		Value any    `json:"value"`
	}
	gCustom struct {
		DrawStyle       string    `json:"drawStyle"`
		LineWidth       int       `json:"lineWidth"`
		FillOpacity     int       `json:"fillOpacity"`
		ShowPoints      string    `json:"showPoints"`
		SpanNulls       bool      `json:"spanNulls"`
		Stacking        gStacking `json:"stacking"`
		ThresholdsStyle gMode     `json:"thresholdsStyle"`
	}
	gStacking struct {
		Mode  string `json:"mode"`
		Group string `json:"group"`
	}
	gMode struct {
		Mode string `json:"mode"`
	}
	gSeriesOptions struct {
		Legend  gLegend  `json:"legend"`
		Tooltip gTooltip `json:"tooltip"`
	}
	gLegend struct {
		DisplayMode string   `json:"displayMode"`
		Placement   string   `json:"placement"`
		ShowLegend  bool     `json:"showLegend"`
		Calcs       []string `json:"calcs"`
	}
	gTooltip struct {
		Mode string `json:"mode"`
		Sort string `json:"sort"`
	}
	gStatOptions struct {
		ColorMode     string         `json:"colorMode"`
		GraphMode     string         `json:"graphMode"`
		JustifyMode   string         `json:"justifyMode"`
		Orientation   string         `json:"orientation"`
		TextMode      string         `json:"textMode"`
		ReduceOptions gReduceOptions `json:"reduceOptions"`
	}
	gReduceOptions struct {
		Calcs  []string `json:"calcs"`
		Fields string   `json:"fields"`
		Values bool     `json:"values"`
	}
)

// colours of legends that are classes of statuses, or states.
var colours = []struct{ legend, colour string }{
	{"1xx", "blue"},
	{"2xx", green},
	{"3xx", "blue"},
	{"4xx", yellow},
	{"5xx", red},
	{"none", orange},
	{"ready", green},
	{"cordoned", "blue"},
	{"waiting", yellow},
	{"never_seen", yellow},
	{"proxy_not_ready", red},
	{"expiring", orange},
	{"early", yellow},
	{"not_tried", yellow},
	{"healthy", green},
	{"current", green},
	{"valid", green},
	{"unhealthy", red},
	{"lost", red},
	{"expired", red},
	{"unreachable", red},
	{"unknown", yellow},
	{"not_current", orange},
	{"not_accepted", red},
}

// Grafana renders the dashboard as Grafana imports and provisions it.
func (d Dashboard) Grafana(o Options) ([]byte, error) {
	page := gDashboard{
		UID: "fairlead-" + d.Name, Title: d.Title, Description: d.Description, Tags: []string{"fairlead"},
		SchemaVersion: 39, Editable: true, GraphTooltip: 1, Refresh: "30s", Time: gTime{"now-1h", "now"}, Timezone: "browser",
		Links: []gLink{{Title: "Fairlead", Type: "dashboards", Icon: "external link", Tags: []string{"fairlead"}, AsDropdown: true, IncludeVars: true, KeepTime: true}},
	}
	choice := gSourceVariable{Name: "datasource", Label: "Prometheus", Type: "datasource", Query: "prometheus"}
	if o.DataSource != "" {
		choice.Current = &gCurrent{o.DataSource, o.DataSource}
	}
	page.Templating.List = []any{choice}
	for _, v := range d.Variables {
		page.Templating.List = append(page.Templating.List, v.grafana())
	}
	id, y := 0, 0
	next := func() int { id++; return id }
	for _, r := range d.Rows {
		page.Panels = append(page.Panels, gRow{ID: next(), Type: "row", Title: r.Title, GridPos: gGrid{1, 24, 0, y}, Panels: []any{}})
		y++
		x, tallest := 0, 0
		for _, p := range r.Panels {
			w, h := p.size()
			if x+w > 24 {
				x, y, tallest = 0, y+tallest, 0
			}
			page.Panels = append(page.Panels, p.grafana(next(), gGrid{h, w, x, y}))
			x, tallest = x+w, max(tallest, h)
		}
		y += tallest
	}
	text, err := json.MarshalIndent(page, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("render dashboard %s: %w", d.Name, err)
	}
	return append(text, '\n'), nil
}

var source = gSource{"prometheus", "${datasource}"}

// Query is the variable's, as Grafana's Prometheus has it.
func (v Variable) Query() string { return "label_values(" + v.Metric + ", " + v.Of + ")" }

func (v Variable) grafana() gQueryVariable {
	return gQueryVariable{
		Name: v.Name, Label: v.Label, Type: "query", Datasource: source, Query: gValues{v.Query(), "A"},
		Refresh: 2, Sort: 1, Multi: true, IncludeAll: true, AllValue: ".*", Current: gCurrent{"All", "$__all"},
	}
}

func (p Panel) size() (w, h int) {
	if w = p.Width; w == 0 {
		w = 12
		if p.Kind == Stat {
			w = 4
		}
	}
	if p.Kind == Stat {
		return w, 4
	}
	return w, 8
}

func (p Panel) grafana(id int, at gGrid) gPanel {
	zero := 0.0
	g := gPanel{ID: id, Type: "timeseries", Title: p.Title, Description: p.Description, GridPos: at, Datasource: source}
	g.FieldConfig.Overrides = []gOverride{}
	defaults := &g.FieldConfig.Defaults
	defaults.Unit, defaults.NoValue = string(p.Unit), "no data"
	defaults.Thresholds = gThresholds{"absolute", []gStep{{Color: p.lowest()}}}
	for _, s := range p.Steps {
		defaults.Thresholds.Steps = append(defaults.Thresholds.Steps, gStep{s.Colour, &s.From})
	}
	for i, q := range p.Queries {
		g.Targets = append(g.Targets, gTarget{
			RefID: string(rune('A' + i)), Datasource: source, Expr: q.Expr, LegendFormat: q.Legend,
			Range: p.Kind != Stat, Instant: p.Kind == Stat, Format: "time_series",
		})
	}
	if p.Kind == Stat {
		g.Type = "stat"
		defaults.Color, defaults.Custom = &gColour{Mode: "thresholds"}, struct{}{}
		g.Options = gStatOptions{"background", "none", "center", "auto", "value", gReduceOptions{Calcs: []string{"lastNotNull"}}}
		return g
	}
	custom := gCustom{DrawStyle: "line", LineWidth: 1, FillOpacity: 10, ShowPoints: "never", Stacking: gStacking{"none", "A"}, ThresholdsStyle: gMode{"off"}}
	if p.Kind == Stacked {
		custom.FillOpacity, custom.Stacking.Mode = 60, "normal"
	}
	if len(p.Steps) > 0 {
		custom.ThresholdsStyle.Mode = "dashed"
	}
	defaults.Min, defaults.Color, defaults.Custom = &zero, &gColour{Mode: "palette-classic"}, custom
	if p.Coloured {
		for _, c := range colours {
			g.FieldConfig.Overrides = append(g.FieldConfig.Overrides, gOverride{
				gMatcher{"byName", c.legend}, []gProperty{{"color", gColour{"fixed", c.colour}}},
			})
		}
	}
	g.Options = gSeriesOptions{gLegend{"table", "bottom", true, []string{"lastNotNull", "max"}}, gTooltip{"multi", "desc"}}
	return g
}

// lowest is the colour of values below all steps.
func (p Panel) lowest() string {
	if p.Falling {
		return red
	}
	return green
}
