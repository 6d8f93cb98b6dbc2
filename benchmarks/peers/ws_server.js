// A server of the Identity dialect on node's `ws`: what one would write with it, and the frame's text made once
// for all subscribers. Usage: node ws_server.js PORT
'use strict';
const { WebSocketServer } = require('ws');

const channels = new Map();
let clients = 0;

const server = new WebSocketServer({ host: '127.0.0.1', port: Number(process.argv[2]), perMessageDeflate: false });

server.on('connection', (socket) => {
  const name = 'user-' + (clients++).toString(16).padStart(8, '0');
  const joined = new Set();

  socket.on('message', (message) => {
    const text = message.toString();
    if (text.startsWith('PUBLISH:')) {
      const colon = text.indexOf(':', 8);
      const channel = text.slice(8, colon);
      if (!joined.has(channel)) {
        socket.send('ERROR:401:Not subscribed');
        return;
      }
      const delivery = Buffer.from(`MSG:${channel}:${name}:${text.slice(colon + 1)}`);
      for (const subscriber of channels.get(channel)) subscriber.send(delivery, { binary: false });
    } else if (text.startsWith('SUBSCRIBE:')) {
      const channel = text.slice(10);
      if (!channels.has(channel)) channels.set(channel, new Set());
      channels.get(channel).add(socket);
      joined.add(channel);
      socket.send('SUB-ACK:' + channel);
    }
  });

  socket.on('close', () => {
    for (const channel of joined) channels.get(channel).delete(socket);
  });

  socket.send('IDENTITY:' + name);
  socket.send('CHANNELS:' + [...channels.keys()].join(','));
});
