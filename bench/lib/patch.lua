-- wrk: small durable writes, each of which changes something. The bearer token is in the environment.
local token = os.getenv("TOKEN") or ""
local n = 0
request = function()
  n = n + 1
  local path = "/api/v1/namespaces/default/configmaps/b" .. (n % 64)
  local headers = {
    ["Authorization"] = "Bearer " .. token,
    ["Content-Type"] = "application/merge-patch+json",
  }
  return wrk.format("PATCH", path, headers, '{"data":{"k":"' .. n .. math.random(1e9) .. '"}}')
end
