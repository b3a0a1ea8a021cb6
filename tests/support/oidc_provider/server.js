// A certified identity provider for tests/browser. Its settings are the JSON in the first argument; it prints the port.
import { createServer } from "node:https";
import { generateKeyPairSync } from "node:crypto";
import { readFileSync } from "node:fs";
import Provider from "oidc-provider";

const { certificate, accounts, base_url, client_id, client_secret } = JSON.parse(process.argv[2]);
const pem = readFileSync(certificate);
const server = createServer({ key: pem, cert: pem });

server.listen(0, "127.0.0.1", () => {
  const { port } = server.address();
  const { privateKey } = generateKeyPairSync("rsa", { modulusLength: 2048 });
  const provider = new Provider(`https://127.0.0.1:${port}`, {
    clients: [
      {
        client_id,
        client_secret,
        redirect_uris: [`${base_url}/sign_in/oidc/callback`],
        post_logout_redirect_uris: [`${base_url}/sign_in`],
        backchannel_logout_uri: `${base_url}/sign_in/oidc/backchannel_logout`,
        backchannel_logout_session_required: true,
      },
    ],
    jwks: { keys: [{ ...privateKey.export({ format: "jwk" }), kid: "first", use: "sig", alg: "RS256" }] },
    // The test changes the file between two sign-ins.
    findAccount: (_, id) => ({
      accountId: id,
      claims: () => ({ sub: id, ...JSON.parse(readFileSync(accounts, "utf-8"))[id] }),
    }),
    claims: { openid: ["sub", "groups"], profile: ["name"], email: ["email"] },
    conformIdTokenClaims: false,
    cookies: { keys: ["a key for tests"] },
    features: { backchannelLogout: { enabled: true }, devInteractions: { enabled: true } },
    pkce: { required: () => true },
    ttl: { Session: 3600, Grant: 3600, Interaction: 600, IdToken: 600, AccessToken: 600 },
  });
  server.on("request", provider.callback());
  console.log(port);
});
