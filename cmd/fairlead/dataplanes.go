package main

import (
	"cmp"
	"log/slog"
	"path/filepath"

	"fairlead.dev/internal/driver/address"
	"fairlead.dev/internal/driver/lb/ipvs"
	"fairlead.dev/internal/driver/lb/nft"
	"fairlead.dev/internal/driver/lb/xdp"
	"fairlead.dev/internal/model"
)

// planeMakers are the data planes of this program, the preferred first.
var planeMakers = []planeMaker{
	{model.DataPlaneXDP, func(f *balancingFlags, log *slog.Logger, changed func()) (closable, error) {
		return xdp.New(xdp.Config{
			Dir: f.bpfDir, Interfaces: f.interfaces, Addresses: f.addresses, Sizes: xdp.Sizes{Flows: f.flows},
			Sysctls: filepath.Dir(cmp.Or(f.sysctls, address.Sysctls)), Log: log, Changed: changed,
		})
	}},
	{model.DataPlaneNFTables, func(f *balancingFlags, log *slog.Logger, changed func()) (closable, error) {
		return nft.New(nft.Config{Sysctls: filepath.Dir(cmp.Or(f.sysctls, address.Sysctls)), Log: log, Changed: changed})
	}},
	{model.DataPlaneIPVS, func(f *balancingFlags, log *slog.Logger, changed func()) (closable, error) {
		return ipvs.New(ipvs.Config{StateDir: f.runDir, Sysctls: filepath.Dir(cmp.Or(f.sysctls, address.Sysctls)), Log: log, Changed: changed})
	}},
}
