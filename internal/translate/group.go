package translate

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"fairlead.dev/internal/model"
	"fairlead.dev/internal/snapshot"
)

// weightLimit is the largest weight, as both route kinds' schemas have it.
const weightLimit = 1_000_000

// plainGroup is a Service's port without options.
func plainGroup(service snapshot.Name, port int32) model.BackendGroup {
	id := service.Namespace + "/" + service.Name + "/" + strconv.Itoa(int(port))
	return model.BackendGroup{ID: model.GroupID(id), Set: model.SetID(id)}
}

// withOptions gives a group its options and an ID of its own for them, a function
// of the options alone: routes that want the same share a group.
func withOptions(g model.BackendGroup, balance model.Balance, check *model.HealthCheck) model.BackendGroup {
	if balance == model.BalanceRoundRobin && check == nil {
		return g
	}
	g.Balance, g.HealthCheck = balance, check
	text := string(balance)
	if check != nil {
		text += fmt.Sprintf("|%q|%q|%d|%d|%d|%d", check.Path, check.Host, check.Interval, check.Timeout, check.Unhealthy, check.Healthy)
	}
	sum := sha256.Sum256([]byte(text))
	g.ID += model.GroupID("~" + hex.EncodeToString(sum[:6]))
	return g
}

func addGroup(groups []model.BackendGroup, g model.BackendGroup) []model.BackendGroup {
	if slices.ContainsFunc(groups, func(known model.BackendGroup) bool { return known.ID == g.ID }) {
		return groups
	}
	return append(groups, g)
}

// addWeight adds a share; one for a group that has a share already makes that larger.
func addWeight(shares []model.WeightedGroup, id model.GroupID, weight uint32) []model.WeightedGroup {
	for i := range shares {
		if shares[i].Group == id {
			shares[i].Weight = uint32(min(uint64(shares[i].Weight)+uint64(weight), math.MaxUint32))
			return shares
		}
	}
	return append(shares, model.WeightedGroup{Group: id, Weight: weight})
}

// groupState counts who names a group: routes of virtual hosts, server names, listeners.
type groupState struct {
	group model.BackendGroup
	uses  int
}

func (t *Translator) useGroups(groups []model.BackendGroup, by int) {
	for _, g := range groups {
		state := t.groups[g.ID]
		if state == nil {
			state = &groupState{group: g}
			t.groups[g.ID] = state
		}
		state.uses += by
		t.touched[g.ID] = struct{}{}
	}
}

// settleGroups publishes the groups that are used and takes back those that are
// not any more, and asks for their sets.
func (t *Translator) settleGroups() {
	for id := range t.touched {
		state := t.groups[id]
		_, stood := t.result.Groups[id]
		set := setNodeOf(state.group.Set)
		switch {
		case state.uses > 0 && !stood:
			g := state.group
			publish(t.result.Groups, t.out.Groups, id, &g)
			t.useTLS(g.TLS, 1)
			t.setUses[set]++
			t.graph.mark(set)
		case state.uses == 0:
			delete(t.groups, id)
			if stood {
				publish(t.result.Groups, t.out.Groups, id, nil)
				t.useTLS(state.group.TLS, -1)
				if t.setUses[set]--; t.setUses[set] == 0 {
					delete(t.setUses, set)
				}
				t.graph.mark(set)
			}
		}
	}
	clear(t.touched)
}

// setNodeOf is the node of a set's ID; names of Kubernetes have no slashes.
func setNodeOf(id model.SetID) node {
	parts := strings.SplitN(string(id), "/", 3)
	return node{nodeSet, parts[0], parts[1], parts[2]}
}
