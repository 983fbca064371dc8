package nft

import (
	"crypto/sha256"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"

	"fairlead.dev/internal/driver/lb/lbtest"
	"fairlead.dev/internal/model"
)

var subject = lbtest.Subject{
	Kind: model.DataPlaneNFTables,
	New: func() (lbtest.DataPlane, error) {
		return New(Config{Log: slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelInfo}))})
	},
	Dump: dump, Meddle: meddle, Damage: damage,
	Repair: func(p lbtest.DataPlane) error { return p.(*Plane).Repair() },
	Cannot: map[lbtest.Feature]string{
		lbtest.Watch:         "its flow table is compared",
		lbtest.AffinityPorts: "each frontend remembers clients for itself",
		lbtest.Scheduler:     "use the data plane IPVS",
		lbtest.MaxFlows:      "use the data plane IPVS", lbtest.QUIC: "use the data plane XDP",
		lbtest.DSRGeneve: "it rewrites addresses", lbtest.DSRIPIP: "it rewrites addresses", lbtest.DSRL2: "it rewrites addresses",
	},
}

func TestMain(m *testing.M) { lbtest.Main(m, subject) }

func TestContract(t *testing.T) { lbtest.Run(t, subject) }

// dump is all of nftables but counters.
func dump() (string, error) {
	c, err := nftables.New()
	if err != nil {
		return "", err
	}
	tables, err := c.ListTables()
	if err != nil {
		return "", err
	}
	chains, err := c.ListChains()
	if err != nil {
		return "", err
	}
	bodies, err := ruleBodies()
	if err != nil {
		return "", err
	}
	var lines []string
	for _, t := range tables {
		name := fmt.Sprintf("%d %s", t.Family, t.Name)
		lines = append(lines, name)
		for _, ch := range chains {
			if ch.Table.Name != t.Name || ch.Table.Family != t.Family {
				continue
			}
			line := name + " chain " + ch.Name
			if t.Name == tableName && t.Family == nftables.TableFamilyINet {
				for _, b := range bodies[ch.Name] {
					line += fmt.Sprintf(" | %.8x", sha256.Sum256([]byte(b)))
				}
			} else {
				rules, err := c.GetRules(t, ch)
				if err != nil {
					return "", err
				}
				line += fmt.Sprint(len(rules), " rules")
			}
			lines = append(lines, line)
		}
		sets, err := c.GetSets(t)
		if err != nil {
			return "", err
		}
		for _, s := range sets {
			line := name + " set " + s.Name
			elements, err := c.GetSetElements(s)
			if err != nil {
				return "", err
			}
			var all []string
			for _, e := range elements {
				all = append(all, fmt.Sprintf(" %x=%x/%t", e.Key, e.Val, e.IntervalEnd))
			}
			slices.Sort(all)
			lines = append(lines, line+strings.Join(all, ""))
		}
	}
	slices.Sort(lines)
	return strings.Join(lines, "\n"), nil
}

// meddle makes a table and a chain with names that could be ours.
func meddle() error {
	c, err := nftables.New()
	if err != nil {
		return err
	}
	for _, t := range []*nftables.Table{{Name: tableName, Family: nftables.TableFamilyIPv4}, {Name: "others", Family: nftables.TableFamilyINet}} {
		c.AddTable(t)
		ch := c.AddChain(&nftables.Chain{Name: "f-0123456789ab-x", Table: t, Type: nftables.ChainTypeNAT, Hooknum: nftables.ChainHookPrerouting, Priority: nftables.ChainPriorityNATDest})
		c.AddRule(&nftables.Rule{Table: t, Chain: ch, Exprs: []expr.Any{&expr.Counter{}}})
	}
	return c.Flush()
}

// damage empties the map of frontends, and takes a base chain's rules away.
func damage() error {
	c, err := nftables.New()
	if err != nil {
		return err
	}
	t := &nftables.Table{Name: tableName, Family: nftables.TableFamilyINet}
	c.FlushSet(&nftables.Set{Table: t, Name: mapChoose + "4"})
	return c.Flush()
}
