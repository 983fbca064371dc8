package main

import (
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"fairlead.dev/internal/dashboard"
)

// listedDashboards is what `dashboards` prints.
type listedDashboards struct {
	Dashboards []listedDashboard `json:"dashboards"`
	Alerts     []listedAlert     `json:"alerts"`
}

type listedDashboard struct {
	Name        string `json:"name"`
	Title       string `json:"title"`
	Description string `json:"description"`
}

type listedAlert struct {
	Name        string `json:"name"`
	Severity    string `json:"severity"`
	For         string `json:"for"`
	Description string `json:"description"`
}

func newDashboards() *cobra.Command {
	var dir, output string
	var options dashboard.Options
	var rules dashboard.RuleOptions
	c := &cobra.Command{
		Use:        "dashboards",
		SuggestFor: []string{"grafana", "alerts", "prometheus"},
		Short:      "List or write the dashboards for Grafana and the alert rules for Prometheus",
		GroupID:    groupData,
		Long: `List the dashboards for Grafana and the alert rules for Prometheus that this version brings.
With --write they are written into a directory: dashboards/*.json, to be imported or
provisioned, and alerts/fairlead.rules.yml, for rule_files of Prometheus. Files that exist are
replaced; others stay.

Every dashboard has a choice of the Prometheus to ask; --datasource sets its first value.`,
		Example: `  fairlead dashboards
  fairlead dashboards --write /etc/fairlead/monitoring
  fairlead dashboards --write . --datasource prometheus-main --runbooks https://git.example.com/fairlead/docs/runbooks
  fairlead dashboards -o json | jq -r '.alerts[].name'`,
		RunE: func(c *cobra.Command, _ []string) error {
			if dir == "" {
				for _, flag := range []string{"datasource", "runbooks"} {
					if c.Flags().Changed(flag) {
						return usageError{err: fmt.Errorf("--%s changes what is written: give --write DIR, too", flag)}
					}
				}
				return listDashboards(c, output)
			}
			if err := rules.Check(); err != nil {
				return usageError{err: fmt.Errorf("--%w", err)}
			}
			files, err := dashboard.Files(options, rules)
			if err != nil {
				return err
			}
			for _, f := range files {
				path := filepath.Join(dir, f.Name)
				if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
					return err
				}
				if err := os.WriteFile(path, f.Content, 0o644); err != nil {
					return err
				}
				fmt.Fprintln(c.OutOrStdout(), path)
			}
			return nil
		},
	}
	c.Flags().StringVar(&dir, "write", "", "directory to write the files into")
	c.Flags().StringVar(&options.DataSource, "datasource", "", "UID or name of the Prometheus in Grafana that dashboards ask first (default: Grafana's default)")
	c.Flags().StringVar(&rules.Runbooks, "runbooks", "", "URL (http, https) or path of the directory with the runbooks, for the annotation runbook_url (default: docs/runbooks, relative to the repository)")
	addOutput(c, &output)
	completeNothing(c, "datasource", "runbooks")
	completeFlag(c, "write", func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
		return nil, cobra.ShellCompDirectiveFilterDirs
	})
	return c
}

func listDashboards(c *cobra.Command, output string) error {
	var list listedDashboards
	for _, d := range dashboard.All() {
		list.Dashboards = append(list.Dashboards, listedDashboard{d.Name, d.Title, d.Description})
	}
	for _, a := range dashboard.Alerts() {
		list.Alerts = append(list.Alerts, listedAlert{a.Name, string(a.Severity), a.For.Round(time.Second).String(), a.Description})
	}
	if output != "text" {
		return printAs(c.OutOrStdout(), output, list)
	}
	w := c.OutOrStdout()
	fmt.Fprintln(w, "Dashboards")
	for _, d := range list.Dashboards {
		fmt.Fprintf(w, "  %-12s %s\n", d.Name, d.Description)
	}
	fmt.Fprintln(w, "\nAlerts")
	for _, a := range list.Alerts {
		fmt.Fprintf(w, "  %-26s %-6s %s\n", a.Name, a.Severity, a.Description)
	}
	return nil
}
