-- Puts a request into the scope of its host: the shard that the host hashes to or, when
-- that shard has no virtual host for it, the wildcard scope. Normaliser and hash are
-- those of Shard in scope.go; a test holds them equal.
--
-- Over TLS, a host that is not the server name of the connection must belong to the same
-- section of names as that; else the answer is 421. SECTION is the wildcard that the
-- server names here are below, or nil: then each is a section by itself.
local bit = require("bit")
local bxor, lshift, tobit, band = bit.bxor, bit.lshift, bit.tobit, bit.band
local byte, lower = string.byte, string.lower
local listener, tls, section = LISTENER, TLS, SECTION
local below = {BELOW} -- suffixes of the wildcards that are more specific than the section
local scopes = {} -- made when first used: a listener may have many of these scripts
local wild = listener .. "/wild"

local function ends(host, suffix)
  return #host > #suffix and host:sub(-#suffix) == suffix
end

local function foreign(host)
  if not section or section ~= "*" and not ends(host, section:sub(2)) then return true end
  for i = 1, #below do
    if ends(host, below[i]) then return true end
  end
  return false
end

local function misdirected(handle)
  handle:respond({[":status"] = "421"}, "421 the host is not served under this server name\n")
end

function envoy_on_request(handle)
  local headers = handle:headers()
  local host = lower(headers:get(":authority") or ""):gsub(":%d+$", "")
  local other = tls and handle:streamInfo():requestedServerName() ~= host
  if other and foreign(host) then return misdirected(handle) end
  local hash = -2128831035 -- FNV-1a, 32 bits: 2166136261
  for i = 1, #host do
    hash = bxor(hash, byte(host, i))
    hash = tobit(hash * 403 + lshift(hash, 24)) -- times 16777619, without leaving 53 bits
  end
  local shard = band(hash, MASK)
  local scope = scopes[shard]
  if not scope then
    scope = listener .. "/" .. shard
    scopes[shard] = scope
  end
  headers:replace("x-fairlead-scope", scope)
  handle:clearRouteCache()
  if handle:metadata():get("unknown_host") then
    if tls and not section then return end -- no wildcard host has this server name
    if host:find("[^%w%.%-_:%[%]]") then -- two hosts, say, which Envoy joins by a comma
      return handle:respond({[":status"] = "400"}, "400 no such host can be\n")
    end
    headers:replace("x-fairlead-scope", wild)
    handle:clearRouteCache()
  elseif other then
    local own = handle:virtualHost():metadata():get("section")
    if own and own ~= section then misdirected(handle) end
  end
end
