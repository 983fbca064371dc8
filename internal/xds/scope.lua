-- Puts a request into the scope of its host: the shard that the host hashes to or, when
-- that shard has no virtual host for it, the wildcard scope. Normaliser and hash are
-- those of Shard in scope.go; a test holds them equal.
local bit = require("bit")
local bxor, lshift, tobit, band = bit.bxor, bit.lshift, bit.tobit, bit.band
local byte, lower = string.byte, string.lower
local listener = LISTENER
local scopes = {}
for i = 0, 1023 do scopes[i] = listener .. "/" .. i end
local wild = listener .. "/wild"

function envoy_on_request(handle)
  local headers = handle:headers()
  local host = lower(headers:get(":authority") or ""):gsub(":%d+$", "")
  local hash = -2128831035 -- FNV-1a, 32 bits: 2166136261
  for i = 1, #host do
    hash = bxor(hash, byte(host, i))
    hash = tobit(hash * 403 + lshift(hash, 24)) -- times 16777619, without leaving 53 bits
  end
  headers:replace("x-fairlead-scope", scopes[band(hash, 1023)])
  handle:clearRouteCache()
  if handle:metadata():get("unknown_host") then
    headers:replace("x-fairlead-scope", wild)
    handle:clearRouteCache()
  end
end
