/** What some platforms have and others not. */
declare var setImmediate: ((call: () => void) => unknown) | undefined;
declare module "ws" {
  export const WebSocket: any;
}
