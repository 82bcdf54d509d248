-- wrk: GETs of small objects. The bearer token is in the environment.
local token = os.getenv("TOKEN") or ""
local n = 0
request = function()
  n = n + 1
  local path = "/api/v1/namespaces/default/configmaps/b" .. (n % 64)
  return wrk.format("GET", path, { ["Authorization"] = "Bearer " .. token })
end
