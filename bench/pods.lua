-- wrk: creates as many pods as the environment says (PODS), and then stops. The bearer token is in the environment.
local token = os.getenv("TOKEN") or ""
local pods = tonumber(os.getenv("PODS") or "1000")
local answered = 0
local body = [[{"metadata":{"generateName":"p-","labels":{"app":"web"}},"spec":{"automountServiceAccountToken":false,
"containers":[{"name":"c","image":"plumb/load","resources":{"requests":{"cpu":"100m","memory":"64Mi"}}}]}}]]
local headers = { ["Authorization"] = "Bearer " .. token, ["Content-Type"] = "application/json" }
-- wrk makes one request before the first that it sends, and throws it away.
local asked = -1
request = function()
  asked = asked + 1
  if asked > pods then
    return wrk.format("GET", "/livez", headers)
  end
  return wrk.format("POST", "/api/v1/namespaces/default/pods", headers, body)
end
response = function(status)
  answered = answered + 1
  if status >= 300 then print("answered with " .. status) end
  if answered >= pods then wrk.thread:stop() end
end
