package bgp

import (
	"encoding/binary"
	"fmt"
	"strings"

	packet "github.com/osrg/gobgp/v4/pkg/packet/bgp"

	"fairlead.dev/internal/model"
)

// onlyToCustomer is the attribute that keeps a route from leaking (RFC 9234, 5).
const onlyToCustomer = packet.BGPAttrType(35)

// roleCodes are the roles as OPENs have them (RFC 9234, 4.1).
var roleCodes = map[model.Role]uint8{
	model.RoleProvider: 0, model.RoleRouteServer: 1, model.RoleRouteServerClient: 2, model.RoleCustomer: 3, model.RolePeer: 4,
}

// counterparts are the roles that fit.
var counterparts = map[model.Role]model.Role{
	model.RoleProvider: model.RoleCustomer, model.RoleCustomer: model.RoleProvider,
	model.RoleRouteServer: model.RoleRouteServerClient, model.RoleRouteServerClient: model.RoleRouteServer,
	model.RolePeer: model.RolePeer,
}

// fits returns why the roles that the peer tells do not fit ours, or nil.
func fits(c model.Peer, theirs []uint8) *failure {
	want, told := counterparts[c.Role]
	switch {
	case !told, len(theirs) == 0 && !c.StrictRole:
		return nil
	case len(theirs) == 1 && theirs[0] == roleCodes[want]:
		return nil
	}
	said := "no role"
	if len(theirs) > 0 {
		names := make([]string, len(theirs))
		for i, code := range theirs {
			names[i] = fmt.Sprint(code)
			for role, known := range roleCodes {
				if known == code {
					names[i] = string(role)
				}
			}
		}
		said = "the role " + strings.Join(names, " and ")
	}
	return refuse(c, model.SessionWrongRole, packet.BGP_ERROR_OPEN_MESSAGE_ERROR, subcodeRoleMismatch, nil,
		"this machine is its %s, so it must be the %s, and it tells %s: correct the role at the router, or the peer's role here", c.Role, want, said)
}

// marked adds to the attributes of a route what the role asks for: a customer, a peer or a client of a route server
// may pass it on to customers of its own only.
func marked(c model.Peer, list []packet.PathAttributeInterface) []packet.PathAttributeInterface {
	switch c.Role {
	case model.RoleProvider, model.RolePeer, model.RoleRouteServer:
		return append(list, packet.NewPathAttributeUnknown(packet.BGP_ATTR_FLAG_OPTIONAL|packet.BGP_ATTR_FLAG_TRANSITIVE, onlyToCustomer,
			binary.BigEndian.AppendUint32(nil, c.LocalASN)))
	}
	return list
}
