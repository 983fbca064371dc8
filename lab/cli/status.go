package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/netip"
	"strings"

	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"

	"fairlead.dev/lab"
	"fairlead.dev/lab/report"
)

func outputFlag(c *cobra.Command, output *string) {
	c.Flags().StringVarP(output, "output", "o", "text", "output format: text, json or yaml")
	must(c.RegisterFlagCompletionFunc("output", cobra.FixedCompletions([]string{"text", "json", "yaml"}, cobra.ShellCompDirectiveNoFileComp)))
	// Before a lab is built rather than after.
	c.PreRunE = func(*cobra.Command, []string) error {
		switch *output {
		case "text", "json", "yaml":
			return nil
		}
		return fmt.Errorf("-o %q: want text, json or yaml", *output)
	}
}

func newStatus() *cobra.Command {
	var name, output string
	c := &cobra.Command{
		Use:   "status",
		Short: "Show the labs of this host: machines, addresses, processes, routers",
		Example: `  fairlead lab status
  fairlead lab status --name demo -o json | jq -r '.[].machines[].namespace'`,
		RunE: func(c *cobra.Command, _ []string) error {
			if name != "" {
				s, err := lab.Read(lab.DefaultDir, name)
				if errors.Is(err, fs.ErrNotExist) {
					return fmt.Errorf("lab %q does not exist: create it with `fairlead lab up --name %s`", name, name)
				}
				if err != nil {
					return err
				}
				return show(c.Context(), c.OutOrStdout(), output, []lab.State{s})
			}
			labs, err := lab.List(lab.DefaultDir)
			return showAll(c.Context(), c.OutOrStdout(), output, labs, err)
		},
	}
	c.Flags().StringVar(&name, "name", "", "name of the lab (default: all)")
	must(c.RegisterFlagCompletionFunc("name", completeNames))
	outputFlag(c, &output)
	return c
}

// showAll shows the labs that could be read, and err about the others. Where none could, it is
// not known whether there are any.
func showAll(ctx context.Context, w io.Writer, output string, labs []lab.State, err error) error {
	if errors.Is(err, fs.ErrPermission) {
		err = fmt.Errorf("%w (labs are root's: run as root)", err)
	}
	if err != nil && len(labs) == 0 {
		return err
	}
	return errors.Join(err, show(ctx, w, output, labs))
}

// shown is a lab as `-o json` prints it.
type shown struct {
	lab.State
	// Stale is true when the lab's owner is gone: `lab down` removes it.
	Stale     bool           `json:"stale"`
	Processes []shownProcess `json:"processes"`
	// Routers are the machines in which BIRD or FRR runs.
	Routers []shownRouter `json:"routers,omitempty"`
}

type shownProcess struct {
	lab.ProcessState
	Running bool `json:"running"`
}

func show(ctx context.Context, w io.Writer, output string, labs []lab.State) error {
	all := make([]shown, 0, len(labs))
	for _, l := range labs {
		s := shown{State: l, Stale: !l.OwnerAlive(), Processes: []shownProcess{}}
		for _, p := range l.Processes {
			s.Processes = append(s.Processes, shownProcess{p, p.Running()})
		}
		if !s.Stale {
			s.Routers = routers(ctx, l)
		}
		all = append(all, s)
	}
	switch output {
	case "text":
		return showText(w, all)
	case "json":
		e := json.NewEncoder(w)
		e.SetIndent("", "  ")
		return e.Encode(all)
	case "yaml":
		raw, err := yaml.Marshal(all)
		if err != nil {
			return fmt.Errorf("print labs: %w", err)
		}
		_, err = w.Write(raw)
		return err
	default:
		return fmt.Errorf("-o %q: want text, json or yaml", output)
	}
}

func showText(w io.Writer, labs []shown) error {
	if len(labs) == 0 {
		_, err := fmt.Fprintln(w, "no labs (`fairlead lab up` makes one)")
		return err
	}
	var errs []error
	for i, l := range labs {
		if i > 0 {
			_, err := fmt.Fprintln(w)
			errs = append(errs, err)
		}
		state := fmt.Sprintf("kept by process %d", l.Owner.ID)
		if l.Stale {
			state = fmt.Sprintf("STALE: its owner has died (`fairlead lab down --name %s` removes it)", l.Name)
		}
		_, err := fmt.Fprintf(w, "Lab %s, %s, %s\n", l.Name, networks(l.State), state)
		errs = append(errs, err)
		t := report.Table{Columns: []string{"MACHINE", "ROLE", "IPV4", "IPV6", "PROCESSES"}}
		for _, m := range l.Machines {
			v4, v6 := spans(m)
			t.Add(m.Name, m.Role, v4, v6, processes(l, m.Name))
		}
		errs = append(errs, t.Write(w, "  "))
		for _, r := range l.Routers {
			errs = append(errs, r.write(w))
		}
	}
	return errors.Join(errs...)
}

// networks writes the networks of a lab's segments.
func networks(l lab.State) string {
	var of []string
	for _, s := range l.Segments {
		of = append(of, strings.TrimSpace(fmt.Sprintf("%s %s and %s", s.Name, s.Net4, s.Net6)))
	}
	return strings.Join(of, ", ")
}

// spans writes a machine's addresses, segment by segment.
func spans(m lab.MachineState) (v4, v6 string) {
	var of4, of6 []string
	for _, w := range m.Wires {
		of4, of6 = append(of4, span(w.Addr4)), append(of6, span(w.Addr6))
	}
	return strings.Join(of4, " "), strings.Join(of6, " ")
}

// span writes the addresses of a wire: the first, and the last if there are more.
func span(addrs []netip.Addr) string {
	if len(addrs) == 1 {
		return addrs[0].String()
	}
	return fmt.Sprintf("%s..%s", addrs[0], addrs[len(addrs)-1])
}

func processes(l shown, machine string) string {
	var of []string
	for _, p := range l.Processes {
		switch {
		case p.Machine != machine:
		case p.Running:
			of = append(of, fmt.Sprintf("%s (%d)", p.Name, p.Pid.ID))
		default:
			of = append(of, p.Name+" (ended)")
		}
	}
	return strings.Join(of, ", ")
}
